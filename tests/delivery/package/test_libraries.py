"""Protects the released libraries: what they need, that they run there, and how they are packed (docs/platforms.md)."""

import json
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import blackbox

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent / "libraries"
sys.path[:0] = [str(ROOT / "tools/package"), str(ROOT / "tests/cost/golden"), str(ROOT / "tests/tools/heap")]

import libraries  # noqa: E402
import making  # noqa: E402
import shipped  # noqa: E402
from old_glibc import version_of  # noqa: E402
from targets import TARGETS  # noqa: E402

NAMES = [target.name for target in TARGETS]
GLIBC = [target.name for target in TARGETS if target.libc == "glibc"]
MUSL = [target.name for target in TARGETS if target.libc == "musl"]
ARM = [target.name for target in TARGETS if target.processor == "aarch64"]
ARM_ROOT = ROOT / "build/aarch64-root"
# What the libraries may take of the static TLS that a C library keeps for libraries opened at run time. glibc keeps
# 1664 bytes for all of them.
TLS_MOST = 80


@pytest.fixture(scope="session")
def plan(made):
    """A plan with the libraries in its folders."""
    return made("libraries")


@pytest.fixture(scope="session")
def trees(plan):
    """{target: its install tree}. The archives are in plan.dist."""
    return {target.name: libraries.tree(plan, target) for target in TARGETS}


def library_of(trees, target, name="hakmem"):
    return (trees[target] / f"lib/lib{name}.so").resolve()


def opened(path):
    return ELFFile(path.open("rb"))


def needed(elf):
    return [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]


def call(*argv, status=0, **variables):
    result = blackbox.run(argv, env=variables)
    assert result.status == status, f"{argv}\n{result.report()}"
    return result


# ---- What they need from a system ----


@pytest.mark.parametrize("target", GLIBC)
def test_nothing_newer_than_glibc_2_17_is_asked_for(trees, target):
    elf = opened(library_of(trees, target))
    assert needed(elf) == ["libc.so.6"]
    versions = {auxiliary.name for _, auxiliaries in elf.get_section_by_name(".gnu.version_r").iter_versions()
                for auxiliary in auxiliaries}
    assert versions and all(version_of(version) and version_of(version) <= (2, 17) for version in versions), versions
    # A name without a version may be missing, so it must be a weak reference.
    indices = elf.get_section_by_name(".gnu.version")
    for place, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
        if place and symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_WEAK":
            assert isinstance(indices.get_symbol(place)["ndx"], int), f"{symbol.name} has no version"


@pytest.mark.parametrize("target", MUSL)
def test_musl_has_all_that_is_asked_for(trees, target):
    elf = opened(library_of(trees, target))
    assert needed(elf) == ["libc.so"]
    assert elf.get_section_by_name(".gnu.version_r") is None
    root = Path("/") if target.startswith("x86_64") else ARM_ROOT
    musl = {
        symbol.name for symbol in opened(root / f"lib/{target}/libc.so").get_section_by_name(".dynsym").iter_symbols()
        if symbol["st_shndx"] != "SHN_UNDEF"
    }
    asked = {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
             if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"}
    assert asked and asked <= musl, asked - musl


@pytest.mark.parametrize("target", NAMES)
def test_segments(trees, target):
    """64 KiB pages on aarch64, little static TLS, and no executable stack."""
    segments = list(opened(library_of(trees, target)).iter_segments())
    page = 0x10000 if target in ARM else 0x1000
    assert all(segment["p_align"] >= page for segment in segments if segment["p_type"] == "PT_LOAD")
    (tls,) = (segment for segment in segments if segment["p_type"] == "PT_TLS")
    assert tls["p_memsz"] <= TLS_MOST and tls["p_align"] <= 8
    (stack,) = (segment for segment in segments if segment["p_type"] == "PT_GNU_STACK")
    assert not stack["p_flags"] & 1


@pytest.mark.parametrize("target", ARM)
def test_atomic_instructions_are_chosen_at_run_time(trees, target):
    """Outside of -moutline-atomics' helpers there is no atomic instruction of ARMv8.1, and no loop in its place."""
    for file in "libhakmem.so", "hakmem.o":
        listing = subprocess.run(
            ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", trees[target] / "lib" / file],
            capture_output=True, text=True, check=True).stdout
        functions = dict(re.findall(r"^[0-9a-f]+ <([^>]+)>:\n((?:.+\n)+)", listing, re.M))
        helpers = {name for name in functions if re.match(r"__aarch64_(cas|swp|ld)", name)}
        assert {"__aarch64_cas8_acq_rel", "__aarch64_ldadd8_relax"} <= helpers, file
        for name, text in functions.items():
            found = re.search(r"\t(casp?|swp|ldadd|ldclr|ldset|ldeor|ld?[as]?xr|st?l?xr)[a-z]*\t", text)
            assert name in helpers or not found, f"{file}: {name} has {found[0]}"


@pytest.mark.parametrize("target", NAMES)
def test_no_file_names_a_folder_of_the_machine(trees, target):
    files = [path for path in trees[target].rglob("*") if path.is_file()]
    assert len(files) > 12
    for path in files:
        data = path.read_bytes()
        assert not any(name in data for name in (str(ROOT).encode(), b".making-", b"lib-build")), path


# ---- The fast path ----


def test_fast_path(plan, trees, tmp_path):
    try:
        shipped.verify(plan.work, tmp_path)
    except shipped.CheckError as error:
        pytest.fail(str(error), pytrace=False)


# ---- On glibc ----


@pytest.fixture(scope="session")
def use(compiled):
    return compiled(HERE / "use.c")


def test_preloaded_on_glibc(trees, use):
    result = blackbox.run([use, 5], preload=library_of(trees, "x86_64-linux-gnu"), env={"HAKMEM_SHOW_STATS": "1"})
    assert result.status == 0 and result.stdout.endswith("ok\n"), result.report()
    assert re.search("^hakmem: ", result.stderr, re.M), result.report()


def test_there_is_room_to_open_it(trees, compiled, tmp_path):
    """glibc's surplus of static TLS has room for 26 copies of the library. One fits beside other users of it."""
    program = compiled(HERE / "opened.c")
    library = library_of(trees, "x86_64-linux-gnu")
    copies = [shutil.copy(library, tmp_path / f"copy{number}.so") for number in range(20)]
    assert call(program, *copies).stdout == "20 all\n"
    others = [path for path in ("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
                                "/usr/lib/x86_64-linux-gnu/libtbbmalloc.so.2",
                                "/usr/lib/x86_64-linux-gnu/libgomp.so.1", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6")]
    assert call(program, *others, library).stdout == "5 all\n"


def test_threads_come_late_to_an_older_glibc(compiled, tmp_path):
    """A program that began without the library of threads opens it. releases.py runs this on such a glibc."""
    threads = tmp_path / "libpthread.so.0"
    blackbox.compile_program(HERE / "older_pthread.c", threads, shared=True)
    sources = [ROOT / "src/os/older_libc.c", ROOT / "src/os/symbols.c"]
    program = compiled(HERE / "older.c", *sources, f"-I{ROOT}/src")
    assert call(program, threads).stdout == "ok\n"


# ---- On musl ----


@pytest.fixture(scope="session")
def musl_program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("musl")

    def build(name, *flags):
        output = folder / f"{name}-{len(list(folder.iterdir()))}"
        blackbox.compile_program(HERE / f"{name}.c", output, *flags, compiler="musl-gcc")
        return output

    return build


@pytest.mark.parametrize("settings", [{}, {"HAKMEM_PURGE_THREAD": "always", "HAKMEM_PURGE_DELAY": "0"}],
                         ids=["defaults", "purge"])
def test_preloaded_on_musl(trees, musl_program, settings):
    """Threads, and forks beside them. HAKMEM provides mallinfo2, which musl lacks."""
    result = blackbox.run([musl_program("use"), 5], preload=library_of(trees, "x86_64-linux-musl"),
                          env={"HAKMEM_SHOW_STATS": "1", **settings})
    assert result.status == 0 and result.stdout.endswith("ok\n"), result.report()
    assert re.search("^hakmem: ", result.stderr, re.M), result.report()
    assert re.match(r"arena [1-9]\d{5}", result.stdout), result.report()


@pytest.mark.parametrize("name", ["hakmem", "hakmem-secure", "hakmem-je", "hakmem-tc"])
def test_forks_beside_threads_on_musl(trees, musl_program, name):
    result = blackbox.run([musl_program("forks")], preload=library_of(trees, "x86_64-linux-musl", name))
    assert result.status == 0, result.report()


def test_stacks_where_there_is_no_unwinder(trees, musl_program, tmp_path):
    """HAKMEM walks stacks with musl, too, which has no unwinder of its own."""
    blackbox.run([musl_program("use"), 5], preload=library_of(trees, "x86_64-linux-musl"),
                 env={"HAKMEM_HEAP_PROFILE": str(tmp_path / "use.pb.gz"), "HAKMEM_HEAP_PROFILE_RATE": "4096"})
    stacks = json.loads(making.run(tmp_path / "use.pb.gz", "--json").stdout)["stacks"]
    lengths = Counter()
    for stack in stacks:
        lengths[len(stack["frames"])] += stack["values"]["alloc_objects"]
    assert lengths.total() > 10_000 and lengths[0] == 0, lengths


def test_musl_opens_it_with_the_program_alone(trees, musl_program):
    """docs/platforms.md gives the reason: a fast path without a call."""
    library = library_of(trees, "x86_64-linux-musl")
    program = musl_program("opened")
    assert call(program, library).stdout.startswith("0 Error relocating") and "initial-exec TLS" in call(
        program, library).stdout
    assert call(program, library, LD_PRELOAD=str(library)).stdout == "1 all\n"


@pytest.mark.parametrize("flags", [["-static"], []], ids=["static", "dynamic"])
def test_linked_on_musl(trees, musl_program, flags):
    archive = trees["x86_64-linux-musl"] / "lib/libhakmem-override.a"
    program = musl_program("use", *flags, "-DWITHOUT_DLSYM", "-Wl,--undefined=malloc", archive)
    result = call(program, 5, HAKMEM_SHOW_STATS="1")
    assert result.stdout.endswith("ok\n") and re.search("^hakmem: ", result.stderr, re.M), result.report()


def test_misuse_is_told_on_musl(trees, musl_program):
    result = blackbox.run([musl_program("free_twice", "-Wno-use-after-free")], preload=library_of(
        trees, "x86_64-linux-musl"))
    assert result.status == -signal.SIGABRT, result.report()
    assert re.match(r"hakmem: free\(0x[0-9a-f]+\): ", result.stderr), result.report()


# ---- On aarch64, under qemu ----


@pytest.fixture(scope="session")
def arm_program(tmp_path_factory):
    """{target: the program}. musl's is linked to the files that ./hakmem has unpacked."""
    folder = tmp_path_factory.mktemp("arm")
    musl, name = ARM_ROOT, "aarch64-linux-musl"
    crt = musl / f"usr/lib/{name}"
    gcc_include = subprocess.run(["aarch64-linux-gnu-gcc", "-print-file-name=include"], capture_output=True, text=True,
                                 check=True).stdout.strip()
    flags = {
        "aarch64-linux-gnu": [],
        name: ["-nostdinc", "-isystem", musl / f"usr/include/{name}", "-isystem", gcc_include, "-nostdlib", "-no-pie",
               crt / "crt1.o", crt / "crti.o", f"-L{musl}/lib/{name}", "-lc", "-lgcc", crt / "crtn.o",
               "-Wl,--dynamic-linker=/lib/ld-musl-aarch64.so.1", "-mno-outline-atomics"],
    }
    return {target: blackbox.compile_program(HERE / "use.c", folder / target, *words, compiler="aarch64-linux-gnu-gcc")
            for target, words in flags.items()}


def emulated(trees, program, target, *options):
    root = "/usr/aarch64-linux-gnu" if target in GLIBC else ARM_ROOT
    return blackbox.run([
        "qemu-aarch64-static", "-L", root, "-E", f"LD_PRELOAD={library_of(trees, target)}", *options, program, 5,
        "alone"
    ], env={"HAKMEM_SHOW_STATS": "1", "HAKMEM_VERBOSE": "1"})


# A processor without ARMv8.1's atomic instructions, and one with them.
@pytest.mark.parametrize("target, page, processor", [
    ("aarch64-linux-gnu", 4096, "cortex-a53"),
    ("aarch64-linux-gnu", 16384, "max"),
    ("aarch64-linux-gnu", 65536, "cortex-a53"),
    ("aarch64-linux-musl", 4096, "max"),
])
def test_preloaded_on_arm(trees, arm_program, target, page, processor):
    result = emulated(trees, arm_program[target], target, "-p", page, "-cpu", processor)
    assert result.status == 0, result.report()
    assert re.search(rf"page {page} usable \d+ ok\n", result.stdout), result.report()
    # With larger pages a huge page is larger than a SuperSlab.
    assert re.search(rf"^hakmem: .*\bHAKMEM_THP={'auto' if page == 4096 else 'never'}\b", result.stderr, re.M), \
        result.report()


# ---- How they are packed ----


@pytest.mark.parametrize("target", NAMES)
def test_archive(plan, trees, target, tmp_path):
    name = f"hakmem-{plan.version}-{target}"
    with tarfile.open(plan.dist / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / name
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    assert {"lib/libhakmem.so", "lib/libhakmem.so.0", "lib/libhakmem.a", "lib/libhakmem-override.a", "lib/hakmem.o",
            "lib/pkgconfig/hakmem.pc", "lib/cmake/hakmem/hakmem-config.cmake", "include/hakmem/hakmem.h",
            "share/doc/hakmem/LICENSE", "share/doc/hakmem/README"} <= files
    text = (folder / "share/doc/hakmem/README").read_text()
    assert plan.version in text and "@" not in text
    assert library_of({target: folder}, target).read_bytes() == library_of(trees, target).read_bytes()


def test_what_the_archive_says_works(plan, trees, tmp_path):
    """The compiler's command lines in its README, and the preload."""
    name = f"hakmem-{plan.version}-x86_64-linux-gnu"
    with tarfile.open(plan.dist / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / name
    lines = [line.strip().split("  #")[0] for line in (folder / "share/doc/hakmem/README").read_text().splitlines()
             if line.strip().startswith("cc ")]
    assert lines
    shutil.copy(ROOT / "tests/delivery/install/consumer/consumer.c", tmp_path / "program.c")
    for line in lines:
        call("sh", "-ec", f"cd {tmp_path}; {line}; ./a.out", PKG_CONFIG_PATH=str(folder / "lib/pkgconfig"),
             LD_LIBRARY_PATH=str(folder / "lib"))
    result = blackbox.run(["true"], preload=folder / "lib/libhakmem.so", env={"HAKMEM_VERBOSE": "1"})
    assert plan.version in result.stderr, result.report()


def test_another_folder_gives_the_same_bytes(trees, made):
    """One library, from sources in a folder whose name has another length and a blank, compiled without ccache."""
    again = made("again").dist / "libhakmem.so"
    assert again.read_bytes() == library_of(trees, TARGETS[0].name).read_bytes()
