"""Protects what `hakmem doctor PID` says about who serves malloc, with real processes."""

import os
import resource
import shutil
import subprocess

import pytest

import blackbox
from asking import SOURCES, ask, ask_about, doctor, waiting

JEMALLOC = "libjemalloc.so.2"


@pytest.fixture(scope="session")
def waits(compiled):
    return compiled(SOURCES / "waits.c", "-ldl")


@pytest.fixture(scope="session")
def plugin(compiled):
    return compiled(SOURCES / "plugin.c", shared=True)


@pytest.fixture(scope="session")
def other_malloc(tmp_path_factory):
    """A library with its own malloc and no name that identifies it. It hands out pieces of one array."""
    source = tmp_path_factory.mktemp("other") / "other.c"
    source.write_text("""
#include <stddef.h>
#include <string.h>
static _Alignas(16) char room[1 << 22];
static size_t at;
void *malloc(size_t size)
{
    size_t taken = __atomic_fetch_add(&at, (size + 31) & ~(size_t)15, __ATOMIC_RELAXED);
    *(size_t *)(room + taken) = size;
    return room + taken + 16;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size)
{
    void *made = malloc(size);
    if (block != NULL) {
        size_t before = *(size_t *)((char *)block - 16);
        memcpy(made, block, before < size ? before : size);
    }
    return made;
}
void plugin_use(void) { free(malloc(10)); }
""")
    return blackbox.compile_program(source, source.with_suffix(".so"), "-fno-builtin", shared=True)


def test_preloaded(waits, library):
    answer = ask_about(waits, preload=library)
    answer.one("ok", "HAKMEM")
    answer.one("ok", "bindings", "libhakmem.so")
    answer.one("ok", "mixed allocators")
    assert not answer.bad() & {"HAKMEM", "bindings", "mixed allocators", "copies", "options", "static TLS",
                               "LD_PRELOAD"}


READY = "print('ready', flush=True); input()"


@pytest.mark.parametrize("variable, notes", [({}, 1), ({"PYTHONMALLOC": "pymalloc"}, 1),
                                             ({"PYTHONMALLOC": "malloc"}, 0)])
def test_a_language_with_arenas_of_its_own(library, variable, notes):
    with waiting("/usr/bin/python3", "-c", READY, preload=library, env=variable) as pid:
        answer = ask(pid)
    found = answer.of("own arenas")
    assert len(found) == notes
    if notes:
        answer.one("note", "own arenas", "PYTHONMALLOC=malloc")


def test_node_has_a_heap_of_its_own(waits, library, tmp_path):
    """It is known by its program's name."""
    node = shutil.copy(waits, tmp_path / "node")
    ask_about(node, preload=library).one("note", "own arenas", "V8")


def test_not_there(waits):
    answer = ask_about(waits)
    assert answer.status == 1
    answer.one("problem", "HAKMEM", "LD_PRELOAD=")


def test_linked(waits, library, compiled):
    program = compiled(SOURCES / "waits.c", "-ldl", "-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}")
    ask_about(program).one("ok", "HAKMEM")


def test_override_in_the_program(compiled, override_archive):
    program = compiled(SOURCES / "waits.c", "-ldl", "-Wl,--whole-archive", override_archive, "-Wl,--no-whole-archive",
                       "-pthread")
    answer = ask_about(program)
    answer.one("ok", "HAKMEM")
    assert not answer.bad() & {"HAKMEM", "bindings", "mixed allocators", "copies"}


def test_static(compiled, tmp_path):
    source = tmp_path / "still.c"
    source.write_text('#include <stdio.h>\n#include <stdlib.h>\nint main(void) { free(malloc(9)); puts("ready"); '
                      'fflush(stdout); return getchar() >= 0; }\n')
    answer = ask_about(compiled(source, "-static"))
    answer.one("problem", "HAKMEM", "libhakmem-override.a")
    assert answer.status == 1


@pytest.mark.parametrize("strip", [False, True])
def test_static_with_hakmem(tmp_path, override_archive, strip):
    source = tmp_path / "still.c"
    source.write_text('#include <stdio.h>\n#include <stdlib.h>\nint main(void) { free(malloc(9)); puts("ready"); '
                      'fflush(stdout); return getchar() >= 0; }\n')
    program = blackbox.compile_program(source, tmp_path / "still", "-static", "-Wl,--whole-archive", override_archive,
                                       "-Wl,--no-whole-archive", "-pthread")
    if strip:
        subprocess.run(["strip", program], check=True)
    ask_about(program).one("ok", "HAKMEM")


def test_another_allocator_before_it(waits, library, other_malloc):
    answer = ask_about(waits, preload=[other_malloc, library])
    answer.one("problem", "HAKMEM", other_malloc.name)
    answer.one("warning", "mixed allocators", other_malloc.name)


def test_another_allocator_behind_it(waits, library, other_malloc):
    """It serves nothing, as the library that a program is linked to behind a preloaded HAKMEM. So nothing is wrong."""
    answer = ask_about(waits, preload=[library, other_malloc])
    answer.one("ok", "HAKMEM")
    answer.one("ok", "mixed allocators", other_malloc.name)
    assert not answer.bad() & {"HAKMEM", "bindings", "mixed allocators", "copies"}


def test_another_allocator_that_serves_some_calls(waits, library, other_malloc):
    answer = ask_about(waits, f"deepbind:{other_malloc}", preload=library, env={"HAKMEM_DEEPBIND": "1"})
    answer.one("warning", "mixed allocators", other_malloc.name)


def test_jemalloc_is_known_by_what_it_defines(waits, library, other_malloc, tmp_path):
    """jemalloc is recognized under any file name."""
    source = tmp_path / "libother.c"
    source.write_text(other_malloc.with_suffix(".c").read_text() + "int mallctl(void) { return 0; }\n")
    other = blackbox.compile_program(source, source.with_suffix(".so"), "-fno-builtin", shared=True)
    ask_about(waits, preload=[library, other]).one("ok", "mixed allocators", "libother.so", "jemalloc")


def test_deepbind(waits, library, plugin):
    answer = ask_about(waits, f"deepbind:{plugin}", preload=library, env={"HAKMEM_DEEPBIND": "1"})
    answer.one("problem", "bindings", plugin.name, "libc.so.6", "RTLD_DEEPBIND", "free", "malloc")
    answer.one("ok", "HAKMEM")


def test_deepbind_that_is_left_out(waits, library, plugin):
    answer = ask_about(waits, f"deepbind:{plugin}", preload=library)
    answer.one("ok", "bindings", "libhakmem.so")


def test_plain_dlopen_is_no_deepbind(waits, library, plugin):
    answer = ask_about(waits, f"load:{plugin}", preload=library)
    answer.one("ok", "bindings", "libhakmem.so")


def test_symbolic(waits, library, other_malloc, tmp_path):
    """A library linked with -Bsymbolic calls its own malloc."""
    symbolic = blackbox.compile_program(other_malloc.with_suffix(".c"), tmp_path / "symbolic.so", "-fno-builtin",
                                        "-Wl,-Bsymbolic", "-O0", shared=True)
    answer = ask_about(waits, f"load:{symbolic}", preload=library)
    answer.one("problem", "bindings", "symbolic.so", "-Bsymbolic")


def test_deepbind_to_its_own(waits, library, other_malloc):
    answer = ask_about(waits, f"deepbind:{other_malloc}", preload=library, env={"HAKMEM_DEEPBIND": "1"})
    answer.one("problem", "bindings", other_malloc.name, "RTLD_DEEPBIND")


def test_dlopened_hakmem_comes_too_late(waits, library):
    answer = ask_about(waits, f"global:{library}")
    answer.one("problem", "HAKMEM", "libc.so.6")


def test_two_copies(waits, library, tmp_path):
    copy = shutil.copy(library, tmp_path / "libhakmem-copy.so")
    answer = ask_about(waits, preload=[library, copy])
    answer.one("warning", "copies", str(copy))


@pytest.mark.parametrize("strip", [False, True])
def test_preloaded_and_linked_in(tmp_path, library, override_archive, strip):
    """The program's own HAKMEM comes first. The preloaded one serves nobody, and the findings name it."""
    program = blackbox.compile_program(SOURCES / "waits.c", tmp_path / "waits", "-ldl", "-Wl,--whole-archive",
                                       override_archive, "-Wl,--no-whole-archive", "-pthread")
    if strip:
        subprocess.run(["strip", program], check=True)
    answer = ask_about(program, preload=library)
    answer.one("warning", "copies", str(library.resolve()), str(program))
    answer.one("ok", "HAKMEM")
    assert answer.status == 1


def test_replaced_file(waits, library, tmp_path):
    copy = shutil.copy(library, tmp_path / "libhakmem.so")
    with waiting(waits, preload=copy) as pid:
        os.unlink(copy)
        answer = ask(str(pid))
    answer.one("ok", "HAKMEM")
    answer.one("note", "HAKMEM")


def test_a_program_that_writes_over_its_environment(waits, library):
    """Programs do so to show their own title in ps."""
    answer = ask_about(waits, "title", preload=library)
    answer.one("ok", "HAKMEM")
    answer.one("note", "options")
    assert len(answer.of("options")) == 1
    answer.one("ok", "static TLS")


def test_preload_that_is_not_there(waits, tmp_path):
    answer = ask_about(waits, preload=tmp_path / "libhakmem.so")
    answer.one("problem", "LD_PRELOAD", str(tmp_path))
    answer.one("problem", "HAKMEM")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a file of root set-user-id, which needs root")
def test_set_user_id(waits, library, tmp_path_factory):
    folder = tmp_path_factory.mktemp("suid")
    for parent in (folder, folder.parent, folder.parent.parent):
        os.chmod(parent, 0o755)
    program = folder / "waits"
    shutil.copy(waits, program)
    os.chmod(program, 0o4755)
    answer = ask_about(program, preload=library, user="nobody")
    answer.one("warning", "privilege", "ld.so.preload")
    answer.one("problem", "HAKMEM")


def test_sanitizer(waits, library, compiled):
    tried = blackbox.run([compiled(SOURCES / "waits.c", "-ldl", "-fsanitize=address")], stdin="")
    if tried.status != 0:
        pytest.skip(f"AddressSanitizer does not run here: {tried.stderr.splitlines()[0]}")
    asan = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True,
                          check=True).stdout.strip()
    answer = ask_about(waits, preload=[asan, library], env={"ASAN_OPTIONS": "detect_leaks=0"})
    answer.one("problem", "mixed allocators", "libasan.so", "AddressSanitizer")


@pytest.mark.parametrize("size, level", [(100, "note"), (480, "warning")])
def test_static_tls(waits, library, compiled, size, level):
    plugin = compiled(SOURCES / "plugin.c", f"-DTLS_BYTES={size}", shared=True)
    ask_about(waits, f"load:{plugin}", preload=library).one(level, "static TLS", plugin.name, str(size),
                                                            "optional_static_tls=")


def test_options_of_the_process(waits, library):
    answer = ask_about(waits, preload=library, env={"HAKMEM_PURGE_DELY": "3", "HAKMEM_PURGE_DELAY": "0",
                                                     "MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "1"})
    answer.one("warning", "options", "HAKMEM_PURGE_DELY=3", "HAKMEM_PURGE_DELAY?")
    answer.one("ok", "options", "HAKMEM_PURGE_DELAY=0")
    answer.one("note", "purging")
    answer.one("note", "options", "MALLOC_ARENA_MAX, MALLOC_TRIM_THRESHOLD_")


def test_bad_values(waits, library):
    """Each is a warning with the variable, its value, and the numbers or words that it may have."""
    values = {"PURGE_DELAY": ("soon", ("500",)), "FC_CAP": ("99999", ("8", "256")),
              "THP": ("maybe", ("auto", "never", "always")), "MEMORY_LIMIT": ("12Q", ()), "VERBOSE": ("2", ("0", "1")),
              "SHOW_STATS": ("xml", ("text", "json", "prometheus")), "HEAP_PROFILE_RATE": ("0", ()),
              "HEAP_PROFILE_UNWIND": ("dwarf", ("auto", "eh", "fp")), "HEAP_PROFILE_SIGNAL": ("SIGFOO", ())}
    answer = ask_about(waits, preload=library, env={
        "HAKMEM_PURGE_THREAD": "auto", **{f"HAKMEM_{name}": value for name, (value, _) in values.items()}})
    for name, (value, words) in values.items():
        answer.one("warning", "options", f"HAKMEM_{name}={value}", *words)
    answer.one("ok", "options", "HAKMEM_PURGE_THREAD=auto")
    assert len(answer.of("options")) == len(values) + 1 and answer.status == 1


def test_values_are_judged_without_what_they_ask_for(waits, library, tmp_path, monkeypatch):
    """The check writes no file and takes no memory that the values name."""
    files = {"HAKMEM_HEAP_PROFILE": "heap.gz", "HAKMEM_STATS_FILE": "stats", "HAKMEM_SHOW_STATS": "json"}
    with waiting(waits, preload=library, cwd=tmp_path, env=files) as pid:
        monkeypatch.chdir(tmp_path)
        answer = ask(str(pid))
        assert list(tmp_path.iterdir()) == []
    assert len(answer.of("options")) == 1
    answer = ask(env={"HAKMEM_SS_PREWARM": "4096", "HAKMEM_ARENA_SIZE": "64G", "HAKMEM_MEMORY_LIMIT": "1K"})
    assert not answer.bad() & {"options"}


def test_bad_values_of_the_environment(library):
    ask(env={"HAKMEM_THP": "yess"}).one("warning", "options", "HAKMEM_THP=yess", "auto", "never", "always")


def test_limits_of_the_process(waits, library):
    limits = {resource.RLIMIT_AS: 4 << 30, resource.RLIMIT_DATA: 2 << 30}
    answer = ask_about(waits, "lock", preload=library,
                       preexec_fn=lambda: [resource.setrlimit(which, (size, size)) for which, size in limits.items()])
    answer.one("note", "limits", "RLIMIT_AS", "4 GiB")
    answer.one("note", "limits", "RLIMIT_DATA", "2 GiB")
    assert len(answer.of("limits")) == 3, "and what is locked in memory"


def test_huge_pages_off_for_the_process(waits, library):
    ask_about(waits, "nothp", preload=library).one("note", "huge pages", "PR_SET_THP_DISABLE")
    ask_about(waits, "nothp", preload=library, env={"HAKMEM_THP": "always"}).one("warning", "huge pages",
                                                                                 "PR_SET_THP_DISABLE")


def test_mappings_are_counted(waits, library):
    with waiting(waits, "maps:500", preload=library) as pid:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            count = len(file.readlines())
        answer = ask(str(pid))
    assert count > 1000
    answer.one("ok", "mappings", f"{count:,}")
    assert len(answer.of("mappings")) == 1, "the machine's limit is in it"


def test_what_cannot_be_looked_at():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    for word, status, named in (("4194304", 1, "4194304"), ("0", 2, "PID"), ("x?", 1, "'x?'"),
                                (child.pid, 1, child.pid)):
        doctor(word).says(status, named)
    child.wait()


def test_text_is_a_line_a_finding(waits, library):
    with waiting(waits, preload=library) as pid:
        answer, result = ask(str(pid)), doctor(str(pid))
    lines = result.stdout.splitlines()
    assert lines[0] == f"process {pid}" and len(lines) == 1 + len(answer.findings)
    for line, finding in zip(lines[1:], answer.findings):
        assert line.startswith(f"{finding['level']:8} {finding['subject']}: ")
        assert line.endswith(finding["advice"])


def test_without_a_process(library):
    answer = ask(env={"HAKMEM_THPP": "never"})
    answer.one("ok", "library", str(library.parent))
    answer.one("warning", "options", "HAKMEM_THPP", "HAKMEM_THP?")
    assert answer.status == 1


def test_without_a_library(tmp_path):
    assert ask(env={"HAKMEM_BUILD_DIR": str(tmp_path)}).one("problem", "library")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libhakmem.so").write_text("no library")
    assert ask(env={"HAKMEM_BUILD_DIR": str(tmp_path)}).one("problem", "library")
