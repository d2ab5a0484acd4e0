"""Protects hakmem-gdb.py on a process, and on cores by gcore and by crashes, with addresses that the program prints."""

import os
import re
import resource
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import blackbox

SCRIPT = blackbox.REPOSITORY / "python/hakmem/gdb/hakmem-gdb.py"
SOURCE = Path(__file__).parent / "heap.c"
TIMEOUT = 120
SECURE = blackbox.LIBRARY.parent / "libhakmem-secure.so"
# Keeps everything in place while the program waits.
SETTINGS = {"HAKMEM_PURGE_DELAY": "3600000"}
# Larger than any core.
CORE_MOST = 1 << 28
PROMPT = ">>>"


@dataclass
class Scene:
    """A program that stands still: how gdb attaches, and what the program printed about its addresses."""

    target: list
    said: dict = field(default_factory=dict)  # what -> [(address, size)]

    def gdb(self, *commands):
        """The output of each command, and gdb's standard error, in one session."""
        words = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", *self.target,
                 "-ex", "set style enabled off", "-ex", f"source {SCRIPT}"]
        for command in commands:
            words += ["-ex", f"echo \\n{PROMPT}\\n", "-ex", command]
        words += ["-ex", f"echo \\n{PROMPT}\\n"]
        result = blackbox.run(words, timeout=TIMEOUT)
        parts = result.stdout.split(f"\n{PROMPT}\n")
        assert len(parts) == len(commands) + 2, result.report()
        return [part.strip() for part in parts[1:-1]], result.stderr

    def one(self, what):
        return self.said[what][0][0]


def parse(text):
    """The program's own lines among gdb's output: what, address, size."""
    said = {}
    for what, address, size in re.findall(r"^([\w-]+) (0x[0-9a-f]+|\(nil\)) (\d+)$", text, re.MULTILINE):
        said.setdefault(what, []).append((int(address.replace("(nil)", "0"), 0), int(size)))
    return said


def begin(program, *arguments, preload=None, cwd=None, core=False, **env):
    limits = (CORE_MOST if core else 0, resource.getrlimit(resource.RLIMIT_CORE)[1])
    return subprocess.Popen([program, *arguments], env=blackbox.environment({**SETTINGS, **env}, preload),
                            stdout=subprocess.PIPE, text=True, cwd=cwd,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, limits),
                            start_new_session=True)


def kernel_writes_cores():
    """Whether the kernel writes whole cores into the program's folder."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    return re.fullmatch(r"[\w.%-]+", pattern) and (hard == resource.RLIM_INFINITY or hard >= CORE_MOST)


def listen(process):
    lines = []
    for line in process.stdout:
        if line == "ready\n":
            return parse("".join(lines))
        lines.append(line)
    raise AssertionError(f"the program ended: {''.join(lines)}")


@pytest.fixture(scope="session")
def dynamic(compiled, library):
    return compiled(SOURCE, f"-I{blackbox.INCLUDE_FOLDER}", "-O0", library, f"-Wl,-rpath,{library.parent}", "-pthread")


@pytest.fixture(scope="session")
def stripped(tmp_path_factory, override_archive):
    """Linked statically, without any symbol."""
    output = tmp_path_factory.mktemp("static") / "heap"
    blackbox.compile_program(SOURCE, output, f"-I{blackbox.INCLUDE_FOLDER}", "-static", "-Wl,--whole-archive",
                             override_archive,
                             "-Wl,--no-whole-archive", "-pthread")
    subprocess.run(["strip", "--strip-all", output], check=True)
    return output


def gcore_scene(program, folder, **env):
    process = begin(program, **env)
    try:
        said = listen(process)
        made = blackbox.run(["gcore", "-o", folder / "core", str(process.pid)], timeout=TIMEOUT,
                            limits={resource.RLIMIT_FSIZE: CORE_MOST})
        core = folder / f"core.{process.pid}"
        assert core.exists(), made.report()
    finally:
        blackbox.stop_session(process)
        process.wait()
    return Scene([program, core], said)


def crash_scene(program, folder):
    """The kernel writes the core if it writes one here, and otherwise gdb at the crash."""
    if kernel_writes_cores():
        process = begin(program, "crash", cwd=folder, core=True)
        said = listen(process)
        process.wait(TIMEOUT)
        (core,) = folder.iterdir()
        return Scene([program, core], said)
    core = folder / "core"
    result = blackbox.run(["gdb", "-nx", "-batch", "-ex", "run crash", "-ex", f"generate-core-file {core}", program],
                          env=SETTINGS,
                          timeout=TIMEOUT, limits={resource.RLIMIT_FSIZE: CORE_MOST})
    assert core.exists(), result.report()
    return Scene([program, core], parse(result.stdout))


@pytest.fixture(scope="session", params=["live", "gcore", "crash", "static gcore", "static crash"])
def scene(request, dynamic, stripped, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cores")
    program = stripped if request.param.startswith("static") else dynamic
    if request.param != "live":
        made = (gcore_scene if request.param.endswith("gcore") else crash_scene)(program, folder)
        yield made
        made.target[1].unlink()
    else:
        process = begin(program)
        try:
            yield Scene(["-p", str(process.pid)], listen(process))
        finally:
            blackbox.stop_session(process)
            process.wait()


def test_addresses_are_what_the_program_says(scene):
    """Starts of blocks, places inside them, and addresses without a block: the state, the block's address and size, how
    far into it the address is, its heap and thread."""
    questions, wanted = [], []

    def expect(address, *words, live=None):
        questions.append(f"hakmem block {address:#x}")
        wanted.append((address, words, live))

    worker, main = (scene.one(who) for who in ("thread", "main"))
    for address, size in scene.said["live"]:
        expect(address, f"at {address:#x}", f"thread {main}", live=True)
        expect(address + size - 1, f"at {address:#x}", f"{size - 1} bytes", live=True)
    expect(scene.one("cached"), f"thread {main}", "2048 bytes", "cache", live=False)
    expect(scene.one("cached") + 5, "5 bytes", "cache", live=False)
    expect(scene.one("worker_live"), "512 bytes", "heap 3", f"thread {worker}", live=True)
    expect(scene.one("worker_cached"), "heap 3", f"thread {worker}", "1024 bytes", "cache", live=False)
    expect(scene.one("remote"), "freed", "heap 3", f"thread {worker}", live=False)
    for address, _ in scene.said["free"]:
        expect(address, "224 bytes", live=False)
    for address, _ in scene.said["kept"]:
        expect(address, "224 bytes", f"at {address:#x}", live=True)
    huge = scene.one("huge")
    expect(huge, "huge", "3145728 bytes", f"at {huge:#x}", live=True)
    expect(huge + 1000000, "huge", "3145728 bytes", f"at {huge:#x}", "1000000 bytes", live=True)
    expect(scene.one("freed_huge") + 7, "huge", live=False)
    expect(scene.one("own_heap"), "320 bytes", live=True)
    for address, _ in scene.said["foreign"]:
        expect(address, live=False)
    live = scene.one("live")
    expect(live & -(1 << 21), "SuperSlab", live=False)
    expect((live & -(1 << 16)) + 65535, "slab", live=False)
    answers, errors = scene.gdb(*questions)
    for answer, (address, words, live) in zip(answers, wanted, strict=True):
        lines = [line for line in answer.splitlines() if line.startswith(f"{address:#x}: ")]
        assert len(lines) == 1 and all(word in lines[0] for word in words), f"{address:#x} {words}: {answer}\n{errors}"
        assert (" live " in lines[0]) is live, lines[0]


def test_walks_and_totals_agree(scene):
    """Walks find the live blocks of a class and nothing else. The totals are the sums of the classes."""
    (answer, live, huge, by_class, few, info, classes, heaps, *refused), errors = scene.gdb(
        "hakmem walk 200", "hakmem walk 100", "hakmem walk huge", "hakmem walk class 11", "hakmem walk 200 -n 3",
        "hakmem info", "hakmem classes", "hakmem heaps", "hakmem walk class 0", "hakmem walk class 99")
    assert refused == ["", ""] and "Traceback" not in errors, errors
    kept = [address for address, _ in scene.said["kept"]]
    assert [int(line.split()[0], 16) for line in answer.splitlines()[:-1]] == sorted(kept)
    assert re.findall(r"\d+", answer.splitlines()[-1]) == ["11", "224", "20"]
    assert f"{scene.one('live'):#x}" in live
    assert huge.splitlines()[0].split()[:2] == [f"{scene.one('huge'):#x}", "3145728"] and len(huge.splitlines()) == 2
    assert by_class == answer
    assert len(few.splitlines()) == 4 and {"20", "17"} <= set(re.findall(r"\d+", few.splitlines()[-1]))
    figures = {name: int(value) for name, value in re.findall(r"^(\w[a-z ]*?) +(\d+)  ", info, re.MULTILINE)}
    parts = ("live", "cached", "free in slab", "retained", "metadata")
    assert sum(figures[part] for part in parts) == figures["mapped"], f"{info}\n{errors}"
    rows = [list(map(int, line.split())) for line in classes.splitlines() if line[:1].isdigit()]
    assert sum(row[-1] for row in rows) + (3 << 20) == figures["live"]
    assert sum(row[1] * row[4] for row in rows) == figures["cached"]
    assert [row[3] for row in rows if row[1] == 224] == [20]
    assert re.search(rf"^2 +thread +live +{scene.one('main')}\b", heaps, re.MULTILINE), heaps
    assert re.search(rf"^3 +thread +live +{scene.one('thread')}\b", heaps, re.MULTILINE), heaps


@pytest.fixture(scope="session")
def profiled(dynamic, tmp_path_factory):
    """A core in which each block is a sample of the heap profile."""
    folder = tmp_path_factory.mktemp("profiled")
    made = gcore_scene(dynamic, folder, HAKMEM_HEAP_PROFILE=str(folder / "heap.gz"),
                       HAKMEM_HEAP_PROFILE_RATE="1",
                       HAKMEM_HEAP_PROFILE_UNWIND="fp")
    yield made
    made.target[1].unlink()


def test_samples_huge_blocks_and_first_class_heaps_in_one_core(profiled):
    """Small sampled blocks are in the profile's heap. All count as live, and the sums hold."""
    live = [(address, size) for what in ("live", "kept", "worker_live", "huge", "own_heap")
            for address, size in profiled.said[what]]
    answers, errors = profiled.gdb(*(f"hakmem block {address + size - 1:#x}" for address, size in live))
    for (address, size), answer in zip(live, answers, strict=True):
        assert " live " in answer and f"at {address:#x}" in answer, f"{answer}\n{errors}"
    by_address = dict(zip((address for address, _ in live), answers, strict=True))
    assert "huge" in by_address[profiled.one("huge")]
    assert "profile" in by_address[profiled.one("worker_live")], "its heap is the profile's"
    (walk, info, classes), errors = profiled.gdb("hakmem walk 200", "hakmem info", "hakmem classes")
    found = {int(line.split()[0], 16) for line in walk.splitlines()[:-1]}
    assert found == {address for address, _ in profiled.said["kept"]}, f"{walk}\n{errors}"
    figures = {name: int(value) for name, value in re.findall(r"^(\w[a-z ]*?) +(\d+)  ", info, re.MULTILINE)}
    parts = ("live", "cached", "free in slab", "retained", "metadata")
    assert sum(figures[part] for part in parts) == figures["mapped"], f"{info}\n{errors}"
    rows = [list(map(int, line.split())) for line in classes.splitlines() if line[:1].isdigit()]
    assert sum(row[-1] for row in rows) + (3 << 20) == figures["live"]
    assert sum(row[1] * row[4] for row in rows) == figures["cached"]


@pytest.mark.parametrize("way", ["live", "gcore"])
def test_a_hardened_process(way, compiled, tmp_path):
    """Nobody has its freed blocks, nor the first one of a slab, so a walk leaves them out. A core by gcore may lack the
    slabs' records: gdb 13 reads a MiB at a time, and a MiB with an inaccessible page cannot be read."""
    program = compiled(SOURCE.parent / "hardened.c")
    env = {"LD_PRELOAD": str(SECURE)}
    if way == "gcore":
        scene = gcore_scene(program, tmp_path, **env)
        (info, block, records), errors = scene.gdb("hakmem info", f"hakmem block {scene.one('kept'):#x}",
                                                   f"x/1gx {scene.one('kept') + 8:#x}")
        if "\t0x0000000000000000" not in records:
            check_hardened(scene)
        else:
            assert "zeros" in info and "zeros" in block, f"{info}\n{errors}"
        return
    process = begin(program, **env)
    try:
        check_hardened(Scene(["-p", str(process.pid)], listen(process)))
    finally:
        blackbox.stop_session(process)
        process.wait()


def check_hardened(scene):
    freed, kept = ([address for address, _ in scene.said[what]] for what in ("freed", "kept"))
    asked = [*freed, *kept, scene.one("span")]
    (walk, info, classes, *answers), errors = scene.gdb("hakmem walk 760", "hakmem info", "hakmem classes",
                                                        *(f"hakmem block {address + 5:#x}" for address in asked))
    told = dict(zip(asked, answers, strict=True))
    assert not any(" live " in told[address] for address in freed), f"{told}\n{errors}"
    assert all(word in told[address] for address in kept for word in (" live ", "768 bytes", f"{address:#x}")), told
    # Slabs of which the program has no block may be gone.
    assert sum("768 bytes" in told[address] and "5 bytes" in told[address] for address in freed) > 30, told
    slabs = {re.search(r"in slab (0x[0-9a-f]+)", told[address])[1] for address in kept}
    withheld, _ = scene.gdb(*(f"hakmem block {slab}" for slab in slabs))
    assert not any(" live " in answer for answer in (*withheld, told[scene.one("span")])), withheld
    assert sorted(kept) == [int(line.split()[0], 16) for line in walk.splitlines()[:-1]], walk
    figures = {name: int(value) for name, value in re.findall(r"^(\w[a-z ]*?) +(\d+)  ", info, re.MULTILINE)}
    rows = [list(map(int, line.split())) for line in classes.splitlines() if line[:1].isdigit()]
    assert sum(row[1] * row[4] for row in rows) == figures["cached"] > 0
    assert sum(row[-1] for row in rows) == figures["live"] < 100 << 10


def refusals(scene, *commands):
    answers, errors = scene.gdb(*commands)
    assert not any(answers), answers
    return errors


def test_bad_use_is_named(dynamic):
    scene = Scene([dynamic])
    errors = refusals(scene, "hakmem info", "hakmem block", "hakmem block nosuchname", "hakmem walk",
                      "hakmem walk foo", "hakmem walk 5 -n x",
                      "hakmem heaps 3")
    for text in ("hakmem block ADDRESS", "nosuchname", "hakmem walk SIZE", "-n", "heaps"):
        assert text in errors, errors
    assert "Traceback" not in errors


def test_a_program_without_hakmem(tmp_path):
    source = tmp_path / "plain.c"
    source.write_text("#include <unistd.h>\nint main(void) { pause(); return 0; }\n")
    program = blackbox.compile_program(source, tmp_path / "plain")
    process = begin(program)
    try:
        while os.readlink(f"/proc/{process.pid}/exe") != str(program):
            pass
        errors = refusals(Scene(["-p", str(process.pid)]), "hakmem info")
        assert "HAKMEM" in errors and "Traceback" not in errors, errors
    finally:
        blackbox.stop_session(process)
        process.wait()


def test_without_pyelftools_it_says_what_is_missing(tmp_path, dynamic):
    """The script alone, without an environment beside it."""
    package = tmp_path / "elsewhere/hakmem"
    (package / "gdb").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for name in ("__init__.py", "hakmem-gdb.py", "commands.py", "memory.py", "blocks.py"):
        (package / "gdb" / name).write_bytes((SCRIPT.parent / name).read_bytes())
    result = blackbox.run(["gdb", "-nx", "-batch", "-ex", f"source {package}/gdb/hakmem-gdb.py"], timeout=TIMEOUT)
    assert "hakmem-gdb.py" in result.stderr and "python3-pyelftools" in result.stderr, result.report()
