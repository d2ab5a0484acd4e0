"""Protects programs and preloads that define some allocation functions: HAKMEM's functions must work with theirs.

Each row runs on the system's allocator first, which shows that the row asks for nothing impossible. The calls in the
last column need not work there."""

from pathlib import Path

import pytest

import blackbox
import machine

HERE = Path(__file__).resolve().parent
FOUR = ["malloc", "free", "calloc", "realloc"]
ALIGNED = ["memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc"]
C = ["c", "realloc", "threads"]
CPP = ["cpp", "cpp_aligned"]
BETTER = ["cpp_aligned", "aligned", "sized", "usable_size"]
WRAPPED = [*C, *CPP, "mixed", "aligned", "usable_size"]

# name: (kind of allocator, functions it defines, calls that work with glibc, calls that need not)
SUBSETS = {
    "the four": ("", FOUR, [*C, "cpp", "mixed"], ["sized", "usable_size", "aligned_16"]),
    "the four and all aligned": ("", [*FOUR, *ALIGNED], [*C, *CPP, "mixed", "aligned"], ["sized", "usable_size"]),
    "the four and memalign": ("", [*FOUR, "memalign"], [*C, "cpp", "mixed"], BETTER),
    "the four and posix_memalign": ("", [*FOUR, "posix_memalign"], [*C, "cpp", "mixed"], BETTER),
    # By which function libstdc++ gets an aligned block depends on its version.
    "the four and aligned_alloc": ("", [*FOUR, "aligned_alloc"], [*C, "cpp"],
                                   ["cpp_aligned", "mixed", "aligned", "sized"]),
    "the four and usable size": ("", [*FOUR, "malloc_usable_size"], [*C, "cpp", "mixed", "usable_size"], ["sized"]),
    "the four and reallocarray": ("", [*FOUR, "reallocarray"], [*C, "cpp", "mixed"], ["sized", "usable_size"]),
    "the four, aligned C++": ("", FOUR, [*C, "cpp"], ["cpp_aligned"]),
    "everything in C": (
        "",
        [*FOUR, *ALIGNED, "reallocarray", "malloc_usable_size"],
        [*C, *CPP, "mixed", "aligned", "usable_size"],
        ["sized"],
    ),
    "malloc and a free that takes all": ("TOLERANT", ["malloc", "free"], ["cpp"], ["sized", "usable_size", "aligned"]),
    "new and delete": ("", ["new"], [*C, *CPP, "aligned"], ["sized", "usable_size"]),
    "new, delete and those of arrays": ("", ["new", "new_array"], [*C, *CPP, "aligned"], ["sized"]),
    "aligned new and delete": ("", ["new_aligned"], [*C, *CPP, "mixed", "aligned"], ["sized"]),
    "the four, new and delete": ("", [*FOUR, "new"], [*C, "cpp"], ["sized", "cpp_aligned"]),
    "all operators": ("", ["new", "new_array", "new_aligned"], [*C, *CPP, "aligned"], ["sized"]),
    "wrapped four": ("WRAPPER", FOUR, WRAPPED, ["sized"]),
    "wrapped malloc": ("WRAPPER", ["malloc"], WRAPPED, ["sized"]),
    "wrapped free": ("WRAPPER", ["free"], WRAPPED, ["sized"]),
    "wrapped malloc and free": ("WRAPPER", ["malloc", "free"], WRAPPED, ["sized"]),
    "wrapped realloc": ("WRAPPER", ["realloc"], WRAPPED, ["sized"]),
    "wrapped calloc": ("WRAPPER", ["calloc"], WRAPPED, ["sized"]),
    "wrapped aligned": (
        "WRAPPER",
        [*FOUR, "posix_memalign", "aligned_alloc"],
        [*C, *CPP, "mixed", "aligned", "usable_size"],
        ["sized"],
    ),
    "wrapped posix_memalign alone": ("WRAPPER", ["posix_memalign"], [*C, *CPP, "mixed", "aligned"], ["sized"]),
    "posix_memalign by aligned_alloc": (
        "WRAPPER",
        [*FOUR, "posix_memalign_by_aligned_alloc"],
        [*C, *CPP, "mixed", "aligned"],
        ["sized"],
    ),
    "wrapped new and delete": ("WRAPPER", ["new"], WRAPPED, ["sized"]),
    "wrapped four, new and delete": ("WRAPPER", [*FOUR, "new"], [*C, *CPP, "mixed", "aligned"], ["sized"]),
}
# LLVM calls these in place of operator new. HAKMEM adds them; the group on the right must work for them.
LLVM = {"llvm": "cpp", "llvm_aligned": "cpp_aligned"}
OPERATORS = {"new", "new_array", "new_aligned"}
REPLACED = [name for name, (kind, names, _, _) in SUBSETS.items() if kind == "" and OPERATORS.issuperset(names)]


def flags_of(subset):
    kind, names, _, _ = SUBSETS[subset]
    return [f"-DHAS_{name}" for name in names] + ([f"-D{kind}"] if kind else [])


def groups_of(subset, *, alone):
    """The groups of calls. `alone`: HAKMEM is in the process."""
    _, _, everywhere, ours_alone = SUBSETS[subset]
    if not alone:
        return everywhere
    groups = [*everywhere, *ours_alone]
    return groups + [llvm for llvm, base in LLVM.items() if base in groups]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """build(subset) makes the allocator's object. build.link(allocator, name, flags) links it with the calls."""
    folder = tmp_path_factory.mktemp("interposed")
    # Mixing new with free is intended.
    use = blackbox.compile_program(HERE / "interposed_use.cpp", folder / "use.o", "-c", "-fPIC",
                                   "-Wno-mismatched-new-delete", "-Wno-unused-result")

    def make(subset):
        return blackbox.compile_program(HERE / "interposed_allocator.c", folder / "allocator.o", "-c", "-fPIC",
                                        *flags_of(subset))

    def link(name, *objects):
        (folder / name).unlink(missing_ok=True)
        blackbox.call(blackbox.COMPILERS[".cpp"], *objects, "-o", folder / name, "-pthread")
        return folder / name

    make.link, make.use, make.plain = link, use, link("plain", use)
    return make


def runs(program, subset, way, *, preload=None, alone=True):
    """Runs the groups, and names the group on which the program failed."""
    groups = groups_of(subset, alone=alone)
    result = blackbox.run([program, *groups], preload=preload)
    assert (result.status, result.stderr) == (0, ""), f"{way}: {result.report()}"
    assert result.stdout.split()[:-2] == groups, f"{way}: {result.report()}"
    return result.stdout.split()[-2:]


@pytest.mark.parametrize("subset", SUBSETS)
def test_allocator_of_the_programs_own(build, library, subset):
    """In the program, with HAKMEM preloaded or linked behind it, and in a library that is preloaded before HAKMEM."""
    allocator = build(subset)
    behind = ["-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}"]
    program = build.link("program", build.use, allocator)
    assert runs(program, subset, "glibc's", alone=False) == ["others", "1"]
    assert runs(program, subset, "preloaded", preload=library) == ["others", "1"]
    # no-pie and &malloc: the program has an address for a function that it does not define.
    for flags in ([], ["-no-pie"]) if SUBSETS[subset][0] == "" else ([],):
        program = build.link("program", build.use, allocator, *flags, *behind)
        assert runs(program, subset, f"linked {flags}") == ["others", "1"]
    earlier = build.link("liballocator.so", allocator, "-shared")
    runs(build.plain, subset, "preloaded first", preload=[earlier, library])


@pytest.mark.parametrize("subset", REPLACED)
@pytest.mark.parametrize("flags", [["-static"], []], ids=["static", "dynamic"])
def test_operators_beside_the_override_archive(build, override_archive, subset, flags):
    """C++ lets every program replace operators, and the archive's give way. malloc is defined once in a program, so
    subsets of the C names do not link."""
    program = build.link("program", build.use, build(subset), *flags, override_archive)
    assert runs(program, subset, "archive") == ["others", "1"]


def names_forwarded(program, preload=None):
    """The functions that the library forwards by its own count, which gdb reads when the program reaches main."""
    before = [f"-ex=set environment LD_PRELOAD {preload}"] if preload else []
    command = ["gdb", "-batch", "-nx", *before, "-ex=set startup-with-shell off", "-ex=break main", "-ex=run"]
    result = blackbox.run([*command, "-ex=output (unsigned int)interposed_names", program], timeout=60)
    return result.stdout.splitlines()[-1]


@machine.needs("ptrace", "program:gdb")
def test_ordinary_programs_forward_nothing(compiled, library, override_archive):
    """Forwarded operators would miss the fast path at every call."""
    source = HERE / "interposed_plain.cpp"
    linked = ["-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}"]
    assert names_forwarded(compiled(source), library) == "0"
    assert names_forwarded(compiled(source, "-no-pie", "-fno-pie", *linked)) == "0"
    assert names_forwarded(compiled(source, "-static", override_archive)) == "0"
    replaced = compiled(source, "-DREPLACED")
    assert int(names_forwarded(replaced, library)) != 0


@pytest.mark.parametrize("settings", [
    {"HAKMEM_GUARD": "1"},
    {"HAKMEM_GUARD": "1", "HAKMEM_GUARD_RATE": "100"},
    {"HAKMEM_HEAP_PROFILE": "profile.pb", "HAKMEM_HEAP_PROFILE_RATE": "100"},
    {"HAKMEM_LEAK_REPORT": "1", "HAKMEM_RECORD_ALL": "1"},
], ids=["guard", "close guards", "profile", "all"])
def test_no_library_is_loaded_by_the_programs_malloc(tmp_path, library, settings):
    """A program's own malloc may not be ready before main. That of GNU Common Lisp crashes if the dynamic linker calls
    it to load a library."""
    program = blackbox.compile_program(
        HERE / "interposed_early.c", tmp_path / "early", HERE / "interposed_allocator.c",
        *[f"-DHAS_{name}" for name in FOUR])
    plain = blackbox.run([program], preload=library, cwd=tmp_path)
    set_up = blackbox.run([program], preload=library, cwd=tmp_path, env=settings)
    assert set_up.status == 0 and set_up.stdout == plain.stdout, plain.report() + set_up.report()
