"""Protects Python functions in the stacks of samples, for the present CPython and for programs that imitate one."""

import json
import re
import select
import subprocess
import sys
from pathlib import Path

import blackbox
import pytest
from making import read, run

from hakmem.heap.stacks import PYTHON, Frame, folded, without_interpreter
from hakmem.live.control import Control
from hakmem.live.memory import ProcessMemory

HERE = Path(__file__).parent
SHOP, HOSTILE = HERE / "shop.py", HERE / "hostile_python.c"
# Every block is a sample, so that the amounts are exact.
RATE = "1"
# (function, mark of its line, bytes that it takes there). Blocks have their class's size: 5000 become 5120, 3000 3072.
SITES = (("grow", "grow", 2300 * 5120), ("Shop.fill", "inner", 2000 * 4096), ("each", "each", 2000 * 4096),
         ("by_key", "key", 2000 * 6144), ("größe", "wide", 1000 * 3072), ("far", "far", 500 * 8192))


def line_of(mark):
    (found,) = (number for number, text in enumerate(SHOP.read_text().splitlines(), 1)
                if text.endswith(f"# LINE {mark}"))
    return found


def environment(path, **more):
    return {"HAKMEM_HEAP_PROFILE": str(path), "HAKMEM_HEAP_PROFILE_RATE": RATE, **more}


@pytest.fixture(scope="module")
def made(library, tmp_path_factory):
    """(the profile's file, the data of `hakmem heap --json`)."""
    path = tmp_path_factory.mktemp("shop") / "shop.pb.gz"
    done = blackbox.run([sys.executable, SHOP], preload=library, env=environment(path, HAKMEM_LEAK_REPORT="1"))
    assert done.status == 0, done.report()
    return path, json.loads(run(path, "--json").stdout), done.stderr


def names_of(stack):
    return [
        frame["name"].replace(".<locals>.<listcomp>", "").replace(".<locals>.<genexpr>", "")
        for frame in stack["frames"]
    ]


def allocated(stacks, name, line):
    """Bytes of the stacks that end in a function's line. 3.12 and later have no function for a comprehension."""
    return sum(stack["values"]["alloc_space"] for stack in stacks
               if stack["frames"] and names_of(stack)[0] == name and stack["frames"][0]["line"] == line
               and stack["frames"][0]["file"] == str(SHOP))


def test_amounts_of_lines(made):
    for name, mark, size in SITES:
        found = allocated(made[1]["stacks"], name, line_of(mark))
        # The lists that hold the blocks, and the heads of bytearrays, are added.
        assert size <= found < size + (200 << 10), name


def test_stacks_from_the_module_in(made):
    stacks = [[(name, frame["line"]) for name, frame in zip(names_of(stack), stack["frames"])]
              for stack in made[1]["stacks"]]
    assert [("grow", line_of("grow")), ("Shop.fill", line_of("fill")), ("main", line_of("main"))] in [
        stack[:3] for stack in stacks]
    assert [("by_key", line_of("key")), ("main", line_of("sorted"))] in [stack[:2] for stack in stacks]
    of_thread = next(stack for stack in stacks if stack[:1] == [("each", line_of("each"))])
    assert of_thread[1] == ("work", line_of("work")) and of_thread[-1][0] == "Thread._bootstrap"
    assert {stack[-1][0] for stack in stacks if stack[:1] == [("grow", line_of("grow"))]} == {"<module>"}
    assert max(sum(name == "deep" for name, _ in stack) for stack in stacks) >= 55  # the most frames that a stack keeps
    (recurred,) = {
        tuple(stack) for stack in stacks
        if stack[:1] == [("grow", line_of("grow"))] and ("recur", line_of("recur")) in stack
    }
    assert sum(name == "recur" for name, _ in recurred) == 11
    assert sum(name.startswith("recur.") for name, _ in recurred) == 11


def test_a_function_that_is_gone(made):
    stacks = [
        stack for stack in made[1]["stacks"] if stack["frames"] and stack["frames"][0]["file"] == "<made \U0001f389>"
    ]
    assert 1000 * 7168 <= sum(stack["values"]["alloc_space"] for stack in stacks) < 1000 * 7168 + (200 << 10)
    assert {names_of(stack)[0]
            for stack in stacks} <= {"made"} and 2 in {stack["frames"][0]["line"] for stack in stacks}


def test_the_interpreters_own_frames(made):
    folded = run(made[0], "--alloc", "--focus", "^by_key$")
    assert "_PyEval" not in folded.stdout and "libc_start" not in folded.stdout
    whole = run(made[0], "--alloc", "--full", "--sort", "cum", "-n", 100)
    assert "_PyEval_EvalFrameDefault" in whole.stdout
    assert not re.search(r"\bpython3[.\d]*[,; ]", folded.stderr)  # names of hidden frames are not missed


def test_libraries_below_python_keep_their_frames(made):
    """zlib is not part of the interpreter: its functions are below the line that calls it."""
    stacks = [
        stack["frames"] for stack in made[1]["stacks"] if any("libz" in frame["module"] for frame in stack["frames"])
    ]
    assert stacks and all(frames[0]["module"] != "[python]" for frames in stacks)
    assert {frame["line"] for frames in stacks for frame in frames if frame["name"] == "main"} == {line_of("zlib")}


def test_pprof_has_them_too(made):
    profile = read(made[0])
    texts = profile.string_table
    functions = {function.id: function for function in profile.function}
    grow = next(function for function in profile.function if texts[function.name] == "grow")
    assert texts[grow.filename] == str(SHOP) and SHOP.read_text().splitlines()[grow.start_line -
                                                                               1] == "def grow(count):"
    (mapping,) = (one for one in profile.mapping if texts[one.filename] == "[python]")
    assert mapping.has_functions and mapping.has_line_numbers
    of_python = [location for location in profile.location if location.mapping_id == mapping.id]
    assert of_python and all(location.line[0].function_id in functions for location in of_python)
    assert all(mapping.memory_start <= location.address < mapping.memory_limit for location in of_python)


def test_the_report_of_leaks_names_them(made):
    assert f"main ({SHOP}:{line_of('leak')})" in made[2]


@pytest.mark.parametrize("begun", ["at its start", "from outside"])
def test_read_from_outside(begun, library, tmp_path):
    """A running process's profile: one from its start, and one that hakmem heap --start, hakmem serve or a tracer turns
    on."""
    variables = environment(tmp_path / "a") if begun == "at its start" else {}
    with subprocess.Popen([sys.executable, SHOP, "started", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=blackbox.environment(variables, preload=library), stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout.readline() == b"started\n"
            control = Control(ProcessMemory(process.pid))
            number = control.request(profile_mean=int(RATE)) if begun == "from outside" else None
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"ready\n"
            if number is not None:
                control.await_answer(number)
            done, tree = run(process.pid, "--json"), run(process.pid, "--tree", "--min", "0")
        finally:
            process.kill()
    assert done.exit_code == 0, done.output
    stacks = json.loads(done.stdout)["stacks"]
    for name, mark, size in SITES:
        # After a start from outside, the first samples find the interpreter.
        assert allocated(stacks, name, line_of(mark)) >= size * (1 if number is None else 0.5), name
    assert "Shop.fill" in tree.stdout
    if number is not None:  # otherwise the interpreter's own start is in the tree
        assert "_PyEval" not in tree.stdout and "libc_start" not in tree.stdout


# A thread holds the dynamic linker's lock when the process forks. The child has no such thread.
FORKS = """
import ctypes, os, sys, threading, time
held = threading.Event()
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
def hold(*_):
    held.set()
    time.sleep(600)
def fill(count):
    return [bytearray(5000) for _ in range(count)]
threading.Thread(target=ctypes.CDLL(None).dl_iterate_phdr, args=(hold, None), daemon=True).start()
held.wait()
means, start = list(map(int, sys.argv[1:])), ctypes.CDLL(None).hak_profile_start
child = os.fork()
if child:
    print(child, flush=True)
    os.waitpid(child, 0)
    os._exit(0)
for mean in means:
    start(mean)
sys.stdin.readline()
kept = fill(1000)
kept += fill(2000)
print("filled", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("who", ["outside", "itself"])
def test_a_profile_that_begins_in_a_child_of_fork(who, library):
    """It finds the interpreter and its own code without a lock that nobody will release."""
    words = [RATE] if who == "itself" else []
    with subprocess.Popen([sys.executable, "-c", FORKS, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=blackbox.environment({}, preload=library),
                          stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            child = int(process.stdout.readline())
            if who == "outside":
                control = Control(ProcessMemory(child))
                number = control.request(profile_mean=int(RATE))
            process.stdin.write(b"\n")
            process.stdin.flush()
            if who == "outside":
                control.await_answer(number, seconds=blackbox.HANG)
            assert select.select([process.stdout], [], [], blackbox.HANG)[0], "the child hangs"
            assert process.stdout.readline() == b"filled\n"
            done = run(child, "--json")
        finally:
            blackbox.stop_session(process)
    stacks = json.loads(done.stdout)["stacks"]
    assert allocated_by(stacks, "fill") >= 2000 * 5120
    assert not any("libhakmem" in frame["module"] for stack in stacks for frame in stack["frames"])


def allocated_by(stacks, name):
    return sum(stack["values"]["alloc_space"] for stack in stacks if name in names_of(stack)[:1])


def test_off_by_an_option(library, tmp_path):
    done = blackbox.run([sys.executable, "-c", "x = [bytearray(5000) for _ in range(1000)]"], preload=library,
                        env=environment(tmp_path / "a", HAKMEM_HEAP_PROFILE_PYTHON="0"))
    assert done.status == 0, done.report()
    profile = read(tmp_path / "a")
    assert "[python]" not in profile.string_table and "<module>" not in profile.string_table


MANY = """
keep = []
for number in range(14000):
    names = {}
    exec(compile(f"def {'n' * 230}{number}():\\n    keep.append(bytearray(9000))\\n", str(number) + "f" * 900, "exec"), {"keep": keep}, names)
    names.popitem()[1]()
    keep.clear()
"""


def test_the_table_of_functions_is_bounded(library, tmp_path):
    """14,000 functions have 10 MiB of names. 8 MiB are kept, and the other names are left out of the stacks."""
    done = blackbox.run([sys.executable, "-c", MANY], preload=library,
                        env=environment(tmp_path / "a", HAKMEM_HEAP_PROFILE_RATE="1"))
    assert done.status == 0, done.report()
    profile = read(tmp_path / "a")
    # Of some 14,000 samples. Names of 230 and 900 characters are cut: the rest of 8 MiB is their records.
    known = [function for function in profile.function if profile.string_table[function.name].startswith("nnn")]
    assert 8000 < len(known) < 13000
    assert sum(len(profile.string_table[function.name]) + len(profile.string_table[function.filename])
               for function in known) < 8 << 20


def test_structures_that_make_no_sense(compiled, library, tmp_path):
    program = compiled(HOSTILE, "-rdynamic", "-O1")
    for version in ("03090000", "030a0000", "030b02f0", "030c00f0", "030d00f0", "030e00f0", "030f00f0"):
        done = blackbox.run([program, version, 20000], preload=library,
                            env=environment(tmp_path / version, HAKMEM_HEAP_PROFILE_RATE="20000"))
        assert done.status == 0 and done.stdout.startswith("done"), done.report()
        assert run(tmp_path / version, "--alloc", "--json").exit_code == 0


# ---- What Python functions stand for ----

EXTENSION = "_json.cpython-311-x86_64-linux-gnu.so"
MAIN, WEB = (Frame(name, f"/app/{name}.py", line, PYTHON) for name, line in (("main", 3), ("web", 9)))
IMPORT = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1176, PYTHON)


def test_an_extension_module_belongs_to_its_caller():
    scanner, abi = Frame("_json.so+0x4ca8", "", 0, EXTENSION), Frame("x", "x.c", 1, "_x.abi3.so")
    library, interpreter = Frame("deflate", "", 0, "libz.so.1"), Frame("vectorcall", "", 0, "libpython3.11.so.1.0")
    assert folded([scanner, abi, WEB, MAIN]) == [WEB, MAIN]
    assert folded([library, scanner, WEB]) == [library, WEB]
    assert without_interpreter([scanner, interpreter, WEB, interpreter]) == [WEB]
    # An extension module that is no callee of Python's keeps its frames.
    assert folded([WEB, scanner]) == [WEB, scanner] and without_interpreter([scanner, library]) == [scanner, library]


def test_an_import_belongs_to_its_caller():
    assert folded([IMPORT, IMPORT, WEB]) == [WEB]
    assert folded([WEB, IMPORT, MAIN]) == [WEB, MAIN]
    assert folded([WEB, IMPORT]) == [WEB, IMPORT] and folded([IMPORT]) == [IMPORT]
