"""Protects all ways into a process: preloaded, linked, linked statically, opened late, twice, before constructors."""

import re
import shutil
import signal
from pathlib import Path

import pytest

import blackbox
import machine

HERE = Path(__file__).resolve().parent


def test_only_public_names_are_exported(library):
    """Several copies in one process do not disturb each other only if no internal name is visible."""
    listing = blackbox.run(["nm", "-D", "--defined-only", library]).stdout.split("\n")
    names = {line.split()[-1].split("@")[0] for line in listing if line and line.split()[-2] != "A"}
    libc = {
        "malloc",
        "free",
        "calloc",
        "realloc",
        "reallocarray",
        "memalign",
        "posix_memalign",
        "aligned_alloc",
        "valloc",
        "pvalloc",
        "cfree",
        "malloc_usable_size",
        "malloc_good_size",
        "free_sized",
        "free_aligned_sized",
        "mallinfo",
        "mallinfo2",
        "mallopt",
        "malloc_trim",
        "malloc_stats",
        "malloc_info",
        "mallocx",
        "rallocx",
        "xallocx",
        "sallocx",
        "nallocx",
        "dallocx",
        "sdallocx",
        "dlopen",
        "dlmopen",
    }
    assert libc <= names
    operators = {name for name in names if re.match(r"_Zn[wa]m|_Zd[la]Pv|__size_returning_new", name)}
    assert len(operators) == 20 + 8 + 4  # the standard's, LLVM's with a hint, and those that return the size
    in_front = {"pthread_create", "thrd_create", "__register_atfork", "prctl"}
    assert in_front <= names
    rest = names - libc - operators - in_front
    # __libc_*: glibc's second names of the same functions.
    assert all(name.startswith(("hak_", "__libc_")) or name == "__posix_memalign" for name in rest), rest


def test_footprint_in_static_tls(library):
    """Static TLS is scarce for libraries that are opened late: the library takes a few words at most."""
    headers = blackbox.run(["readelf", "-lW", library]).stdout
    tls = re.search(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x\S+)", headers, re.MULTILINE)
    assert tls and int(tls.group(1), 16) <= 128
    assert not re.search(r"GNU_STACK.*RWE", headers), "no executable stack"
    assert "TEXTREL" not in blackbox.run(["readelf", "-dW", library]).stdout


def windows(kib):
    """KiB of the windows that a range of pages can meet: the kernel maps aligned windows of 64 KiB
    (fault_around_bytes)."""
    return ((kib - 4) // 64 + 2) * 64


def resident_of(library):
    """KiB of the library in cat: code, constants, and written .data."""
    sums, kind = {"code": 0, "constants": 0, "written": 0}, None
    for line in blackbox.run(["cat", "/proc/self/smaps"], preload=library).stdout.split("\n"):
        if mapping := re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+) (\S+) ", line):
            kind = None
            if line.endswith(str(Path(library).resolve())):
                permissions, offset = mapping.groups()
                kind = "code" if "x" in permissions else "written" if "w" in permissions else "constants" if int(
                    offset, 16) else None
        elif kind and line.startswith("Anonymous:" if kind == "written" else "Rss:"):
            sums[kind] += int(line.split()[1])
    return sums


def test_a_small_program_maps_little_of_the_library(library):
    """What every process runs, reads and writes lies together (cmake/HakmemLibraries.cmake): 120, 28 and 16 KiB. A
    touch maps the window of pages around it. So many windows can hold a part of it, wherever the library lies."""
    resident = resident_of(library)
    assert 0 < resident["code"] <= windows(120), resident
    assert resident["constants"] <= windows(28), resident
    assert resident["written"] <= 16, resident
    assert "(FINI)" not in blackbox.run(["readelf", "-dW", library]).stdout


def test_quiet_from_start_to_end(library):
    for argv in (["true"], ["sh", "-c", "exit 5"], ["ls", "/"], ["python3", "-c", "import json"]):
        plain, ours = blackbox.run(argv), blackbox.run(argv, preload=library)
        assert (ours.status, ours.stdout, ours.stderr) == (plain.status, plain.stdout, plain.stderr)
        assert ours.stderr == ""


def test_constructors_before_the_allocators(compiled, library):
    early = compiled(HERE / "early.c", shared=True)
    for preload in ([library, early], [early, library]):
        result = blackbox.run(["perl", "-e", r'print "$ENV{EARLY}\n"'], preload=preload)
        assert (result.status, result.stderr) == (0, "")
        assert result.stdout == "done\nlate 1\n"
    plain = blackbox.run(["perl", "-e", r'print "$ENV{EARLY}\n"'], preload=early)
    assert plain.stdout == result.stdout


@pytest.mark.parametrize(
    "flags", [["-pie", "-fPIE"], ["-no-pie"], ["-Wl,-z,now"], ["-Wl,-z,lazy"]], ids=lambda flags: flags[-1]
)
def test_calls_before_all_constructors(compiled, flags):
    blackbox.run_both([compiled(HERE / "first_calls.c", *flags)])


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie", "-fPIE"], []], ids=["static", "static-pie", "dynamic"])
@pytest.mark.parametrize("program", ["linked", "first_calls"])
def test_linked_with_the_override(compiled, override_archive, program, flags):
    static = ["-DWITHOUT_RESOLVER"] if flags and program == "first_calls" else []
    built = compiled(HERE / f"{program}.c", "-Wl,--fatal-warnings", *flags, *static, override_archive)
    result = blackbox.run([built])
    assert (result.status, result.stderr) == (0, ""), result.report()
    if program == "linked":
        usable = int(re.search(r"usable (\d+) of 100", result.stdout).group(1))
        assert usable == 112, "malloc is HAKMEM's"
    verbose = blackbox.run([built], env={"HAKMEM_VERBOSE": "1"})
    assert verbose.stderr.startswith("hakmem: version ")


@pytest.mark.parametrize("flags", [["-static"], []], ids=["static", "dynamic"])
def test_linked_with_its_own_names_only(compiled, override_archive, flags):
    """hak_* beside the C library's malloc: each serves its own blocks."""
    archive = override_archive.with_name("libhakmem.a")
    result = blackbox.run(
        [
            compiled(
                HERE / "linked.c",
                "-DHAK_STATIC",
                *flags,
                "-Wl,-u,hak_malloc,-u,hak_free,-u,hak_version",
                "-Wl,-u,hak_usable_size",
                archive,
            )
        ]
    )
    assert (result.status, result.stderr) == (0, ""), result.report()
    assert "usable 104 of 100" in result.stdout
    assert "hak usable 112 of 100" in result.stdout


def test_linked_with_the_shared_library(compiled, library):
    built = compiled(HERE / "linked.c", "-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}")
    result = blackbox.run([built])
    assert (result.status, result.stderr) == (0, ""), result.report()
    assert "usable 112 of 100" in result.stdout


def test_opened_and_closed_again_and_again(compiled, library):
    program = compiled(HERE / "opened.c")
    result = blackbox.run([program, library])
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.fixture(scope="module")
def second_copy(tmp_path_factory, library):
    return shutil.copy(library, tmp_path_factory.mktemp("copy") / "libother.so")


def test_two_copies_side_by_side(compiled, second_copy):
    result = blackbox.run_with_proof([compiled(HERE / "two_copies.c"), second_copy, "both"])
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.mark.parametrize("size", [100, 20000, 200000, 5000000])
@pytest.mark.parametrize("case,function", [("theirs", "free"), ("ours", "hak_free")])
def test_block_of_the_other_copy_is_foreign(compiled, second_copy, case, function, size):
    result = blackbox.run([compiled(HERE / "two_copies.c"), second_copy, case, size], preload=blackbox.LIBRARY)
    assert result.status == -signal.SIGABRT, result.report()
    pointer = result.stdout.strip()
    assert re.fullmatch(
        rf"hakmem: {function}\({pointer}\): not allocated by HAKMEM.*\n", result.stderr
    ), result.report()


def test_block_of_glibc_is_foreign(compiled, library):
    """Two allocators in one process, as under RTLD_DEEPBIND: hak_free of a block from the process's malloc is
    reported."""
    result = blackbox.run([compiled(HERE / "two_copies.c"), library, "ours", 100])
    assert result.status == -signal.SIGABRT, result.report()
    assert "not allocated by HAKMEM" in result.stderr


# ---- Privileged programs ----


@machine.needs("root", "setuid")
@pytest.mark.parametrize("how", ["shared", "override"])
def test_environment_is_ignored_in_secure_mode(open_folder, library, override_archive, how):
    """A setuid program started by another user reads no HAKMEM_* variable. The same program without the bit does."""
    if how == "shared":
        shutil.copy(library, open_folder / "libhakmem.so")
        # The dynamic linker looks for it under its soname.
        soname = re.search(r"SONAME.*\[(.+)\]", blackbox.run(["readelf", "-dW", library]).stdout)
        if soname and soname.group(1) != "libhakmem.so":
            shutil.copy(library, open_folder / soname.group(1))
        flags = ["-Wl,--no-as-needed", open_folder / "libhakmem.so", f"-Wl,-rpath,{open_folder}"]
    else:
        flags = [override_archive]
    program = blackbox.compile_program(HERE / "secure.c", open_folder / "program", *flags)
    env = {"HAKMEM_VERBOSE": "1", "HAKMEM_NO_SUCH_NAME": "1", "HAKMEM_PURGE_DELAY": "nonsense"}
    program.chmod(0o755)
    open_run = blackbox.run([program], env=env, user="nobody")
    assert (open_run.status, open_run.stdout) == (0, "secure 0\n"), open_run.report()
    assert "version" in open_run.stderr and "HAKMEM_NO_SUCH_NAME" in open_run.stderr
    program.chmod(0o4755)
    secure_run = blackbox.run([program], env=env, user="nobody")
    assert (secure_run.status, secure_run.stdout, secure_run.stderr) == (0, "secure 1\n", ""), secure_run.report()
