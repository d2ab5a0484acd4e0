"""Protects the tools from processes that want them to hang, to die, to take all memory, or to show anything."""

import json
import os
import re
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import blackbox
import inprocess
import pytest
from hostile import COMMAND, CONSTANT, ENVIRONMENT, FIELD, ROOT, TYPE, changed, one_line, packed

from hakmem import apart, foreign
from hakmem.clean import clean, clean_lines
from hakmem.foreign import Mapping
from hakmem.live import LiveError, ProcessMemory, find, snapshot
from hakmem.live.descriptor import find_all
from hakmem.live.memory import Excess, parse_mappings
from hakmem.processes import read_one
from hakmem.ps import survey

MIB = 1 << 20
NAME = "[/]\x1b[31m\u202e\n<b>"  # 15 bytes, the most that the kernel keeps
SHOWN = "[/]\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}<b>"


def mapped_as(target, path):
    target.tell("map", os.fsencode(path).hex())


# ---- Files ----


def test_a_file_that_became_a_fifo(target, honest_rows, tmp_path):
    """The kernel's name "a (deleted)" may also be the name of another file."""
    target.show_empty_heap(honest_rows)  # so that all files are read
    (tmp_path / "a").write_bytes(bytes(8192))
    mapped_as(target, tmp_path / "a")
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a (deleted)")
    for command in ("stats", "doctor", "explain", "heap"):
        result = inprocess.hakmem(command, target.pid)
        # doctor also warns of the machine, as where memory ran out once.
        assert result.status == (command == "heap") or command == "doctor", result.report()
        assert result.stdout.startswith(f"process {target.pid}\n") or command != "doctor", result.report()


def test_only_the_mapped_file_is_opened(target, tmp_path):
    """By map_files, or by its path: a regular file with that device and inode, or none."""
    path = tmp_path / "a\x85b c"
    path.write_bytes(b"content " * 1024)
    mapped_as(target, path)
    memory = ProcessMemory(target.pid)
    (mapping,) = [one for one in memory.mappings() if one.path == str(path)]
    elsewhere = Mapping(1, 2, *list(vars(mapping).values())[2:])  # map_files has no such name
    for one in (mapping, elsewhere):
        with memory.open_mapping(one) as file:
            assert file.pread(8, 0) == b"content " and file.pread(1 << 60, 8188) == b"ent "
            assert not os.get_inheritable(file.fileno())
    for other in (Mapping(1, 2, "r-xp", 0, "00:99", mapping.inode, mapping.path),
                  Mapping(1, 2, "r-xp", 0, mapping.device, mapping.inode + 1, mapping.path),
                  Mapping(1, 2, "r-xp", 0, mapping.device, mapping.inode, "/dev/zero")):
        assert memory.open_mapping(other) is None
    path.rename(tmp_path / "elsewhere")
    path.write_bytes(b"another")
    assert memory.open_mapping(elsewhere) is None
    with memory.open_mapping(mapping) as file:
        assert file.pread(8, 0) == b"content ", "the mapped file, wherever its name went"


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero", "/dev/tty", "/proc/self/fd/0"):
        try:
            assert foreign.open_regular(path) is None
        except OSError:  # no terminal here
            assert path == "/dev/tty"


def test_one_module_opens_files_of_others():
    """Other modules ask it. No file is mapped: -1 is memory."""
    for path in (blackbox.REPOSITORY / "python/hakmem").rglob("*.py"):
        text = path.read_text()
        assert "mmap.mmap(" not in text.replace("mmap.mmap(-1,", ""), path
        if path.name != "foreign.py":
            assert "map_files" not in text and "/root{" not in text, path


def test_a_file_that_shrinks_while_it_is_searched(tmp_path):
    """A mapping would raise SIGBUS. Reading finds that the rest is gone."""
    script = f"""
import os, threading, time
from hakmem import foreign
from hakmem.live.descriptor import offset_in_file
path = {str(tmp_path / 'file')!r}
def change():
    while True:
        os.truncate(path, 1 << 28)
        os.truncate(path, 0)
open(path, "wb").close()
threading.Thread(target=change, daemon=True).start()
end = time.monotonic() + 2
while time.monotonic() < end:
    with (foreign.open_regular(path) if hasattr(foreign, "open_regular") else open(path, "rb")) as file:
        assert offset_in_file(file) is None
print("alive", flush=True)
os._exit(0)
"""
    result = blackbox.run([sys.executable, "-c", script], env=ENVIRONMENT)
    assert (result.status, result.stdout) == (0, "alive\n"), result.report()


def test_a_large_file_of_which_little_is_mapped(target, honest_rows, tmp_path):
    """Unmapped parts cannot hold a descriptor, and are not read: a file of one TiB without contents costs nothing."""
    for number in range(20):
        path = tmp_path / f"sparse{number}"
        path.touch()
        os.truncate(path, 1 << 40)
        mapped_as(target, path)
    target.show_empty_heap(honest_rows)
    assert snapshot(ProcessMemory(target.pid)).totals.live == 0  # 20 TiB would take hours


def test_lines_end_where_the_kernel_ends_them():
    text = "1000-2000 r-xp 00000000 fe:00 12 /a\x0bb\x85c\u2028d e  f\n2000-3000 rw-p 00001000 fe:00 0 \n"
    assert [(one.start, one.path) for one in parse_mappings(text)] == [(0x1000, "/a\x0bb\x85c\u2028d e  f"),
                                                                       (0x2000, "")]


def test_texts_of_proc_are_bounded(tmp_path):
    (tmp_path / "text").write_bytes(bytes(1000))
    assert len(foreign.read_proc(tmp_path / "text", 1000)) == 1000
    with pytest.raises(foreign.TooLarge):
        foreign.read_proc(tmp_path / "text", 999)


# ---- Descriptors ----

DESCRIPTORS = {
    "no rows": lambda rows: packed([]),
    "no such struct": lambda rows: packed(changed(rows, TYPE, "heap", gone=True)),
    "no such field": lambda rows: packed(changed(rows, FIELD, "slot.kind", gone=True)),
    "no such constant": lambda rows: packed(changed(rows, CONSTANT, "UNIT_SIZE", gone=True)),
    "no such root": lambda rows: packed(changed(rows, ROOT, "registry", gone=True)),
    "a struct of 1 GiB": lambda rows: packed(changed(rows, TYPE, "shared_pool", size=1 << 30)),
    "a struct of nothing": lambda rows: packed(changed(rows, TYPE, "options", size=0)),
    "fields on one another": lambda rows: packed(changed(rows, FIELD, "slot.touched", value=0)),
    "a field beyond its struct": lambda rows: packed(changed(rows, FIELD, "heap.next", value=1 << 62)),
    "a field of 3 bytes": lambda rows: packed(changed(rows, FIELD, "registry.count", size=3)),
    "a field of many": lambda rows: packed(changed(rows, FIELD, "registry.departed", count=1 << 31)),
    "SuperSlabs of nothing": lambda rows: packed(changed(rows, CONSTANT, "SUPERSLAB_UNITS", value=0)),
    "SuperSlabs of much": lambda rows: packed(changed(rows, CONSTANT, "SUPERSLAB_SIZE", value=1 << 60)),
    "many classes": lambda rows: packed(changed(rows, CONSTANT, "CLASS_COUNT", value=1 << 31)),
    "many buckets": lambda rows: packed(changed(rows, CONSTANT, "HUGE_BUCKETS", value=1 << 40)),
    "a root in the kernel": lambda rows: packed(changed(rows, ROOT, "registry", value=1 << 63)),
    "a name that steers": lambda rows: packed(changed(rows, TYPE, "slab", rename="sl\x1b[31m\nab")),
    "rows of another size": lambda rows: packed(rows, row_size=8),
    "more rows than bytes": lambda rows: packed(rows, count=1 << 20),
    "a table of 4 GiB": lambda rows: packed(rows, size=(1 << 32) - 1, count=(1 << 26) - 1),
    "a version that steers": lambda rows: packed(rows, form=99, version=b"\x1b[2J\n1"),
}


@pytest.mark.parametrize("case", DESCRIPTORS)
def test_a_descriptor_that_none_is(target, rows, case):
    """One line says so, before anything that the table names is read."""
    target.poke(target.table, DESCRIPTORS[case](rows))
    memory = ProcessMemory(target.pid)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LiveError) as caught:
        snapshot(memory)
    assert str(caught.value).isprintable() and str(target.pid) in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024, "KiB"


def test_it_is_one_line_of_the_command(target, rows):
    for case in ("no rows", "a struct of 1 GiB", "a version that steers"):
        target.poke(target.table, DESCRIPTORS[case](rows))
        one_line(inprocess.hakmem("stats", target.pid))


def test_a_damaged_copy_beside_a_good_one(target, rows):
    """Somebody who can map a file into a process must not be able to hide its heap."""
    target.poke(target.table, packed([]))
    with pytest.raises(LiveError):
        find_all(ProcessMemory(target.pid))
    target.show(rows)
    assert len(find_all(ProcessMemory(target.pid))) == 1


def test_a_sound_descriptor_of_a_heap_that_is_none(target, honest_rows):
    """First zeros, which are an empty heap, and then counts and addresses that no heap has."""
    target.show_empty_heap(honest_rows)
    memory = ProcessMemory(target.pid)
    assert snapshot(memory).totals.live == 0
    descriptor = find(memory)
    for root, field, value in (
            ("hak_units", None, 1 << 60), ("hak_window", None, 1 << 60), ("registry", "registry.heaps", 8),
            ("registry", "registry.count", (1 << 32) - 1), ("table_memory", "table_memory.maps", 4096),
            ("huge_inside", "huge_inside.buckets", 1 << 46), ("size_classes", "size_class.blocks", (1 << 32) - 1),
            ("hak_options", "options.heap_profile", 1 << 40), ("shared_pool", "shared_pool.slots", 1 << 46)):
        place = descriptor.roots[root] + (descriptor.fields[field].offset if field in descriptor.fields else 0)
        before = memory.read(place, 8)
        size = descriptor.fields[field].size if field in descriptor.fields else 8
        target.poke(place, struct.pack("<Q", value)[:size])
        try:
            assert snapshot(memory).totals.live == 0
        except LiveError as error:
            assert str(error).isprintable()
        target.poke(place, before)
    assert snapshot(memory).totals.live == 0


def test_a_look_has_a_bound_of_bytes(target):
    memory = ProcessMemory(target.pid)
    with pytest.raises(Excess):
        memory.read(target.arena, 1 << 40)
    memory.begin_look()
    size, begun = 16 * MIB, memory.left
    assert 1024 * MIB <= begun < 1280 * MIB
    with pytest.raises(Excess):
        for _ in range(begun // size + 1):
            memory.read(target.arena, size)
    memory.begin_look()
    assert memory.read(target.arena, 8) == bytes(8)


# ---- Readers that are held up ----


def held(target, rows):
    """Makes readers of the heap's state wait for ever."""
    target.show(rows)
    pool = next(value for kind, name, value, *_ in rows if (kind, name) == (ROOT, "registry"))
    target.hold(pool, MIB)


def test_a_command_that_is_held_up_ends(target, rows):
    held(target, rows)
    script = "import hakmem.cli as cli; cli.WATCHED['stats'] = 2; cli.main()"
    begun = time.monotonic()
    result = blackbox.run([sys.executable, "-c", script, "stats", target.pid], env=ENVIRONMENT)
    assert "2 seconds" in one_line(result)
    assert time.monotonic() - begun < blackbox.HANG


# The number of process_vm_readv.
READING = re.compile({"x86_64": "310 ", "aarch64": "270 "}[os.uname().machine])


def child_of(pid):
    """The process that a command starts to read another one; the command itself before that."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return children[0] if children else pid


def test_ctrl_c_ends_a_command_that_is_held_up(target, rows):
    held(target, rows)
    process = subprocess.Popen([*COMMAND, "stats", str(target.pid)], env=blackbox.environment(ENVIRONMENT),
                               start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    blackbox.wait_for(lambda: READING.match(Path(f"/proc/{child_of(process.pid)}/syscall").read_text()), "the read")
    os.killpg(process.pid, 2)
    process.communicate(timeout=blackbox.HANG)
    assert process.returncode in (130, -2)


def test_ps_passes_over_who_holds_it_up(target, rows, honest, monkeypatch):
    """Each process has ten seconds, of which an honest one needs milliseconds."""
    held(target, rows)
    monkeypatch.setattr(survey, "SECONDS", 10)
    monkeypatch.setattr(survey, "all_processes", lambda: [read_one(target.pid), read_one(honest)])
    found = {row["pid"]: row for row in json.loads(inprocess.hakmem("ps", "--json").stdout)["processes"]}
    assert found[target.pid]["problem"] and found[honest]["live"] > 0


def test_top_says_that_it_is_held_up(target, rows):
    held(target, rows)
    script = "import hakmem.top.command as top; top.SECONDS = 1; import hakmem.cli as cli; cli.main()"
    result = blackbox.run([sys.executable, "-c", script, "top", "--once", target.pid], env=ENVIRONMENT)
    assert "1 seconds" in one_line(result)


def steps(number):
    if number == 2:
        time.sleep(60)
    if number == 3:
        os._exit(7)
    if number == 4:
        return len(bytearray(1 << 33))
    return number * 10


def test_work_in_steps():
    found = dict(apart.in_steps(steps, range(7), 10, 4 << 30))
    assert [found[number] for number in (0, 1, 5, 6)] == [0, 10, 50, 60]
    assert isinstance(found[2], apart.Late) and isinstance(found[3], apart.Failed) and isinstance(
        found[4], apart.Failed)
    assert "status 7" in str(found[3])


# ---- Names ----


@pytest.mark.parametrize("text, shown", [
    ("plain", "plain"), ("a\nb\tc\0", "a?b?c?"), ("\x1b[31m\x9b1m\x7f", "?[31m?1m?"), ("\u202eabc\u2066", "?abc?"),
    ("\u2028\u2029\x85", "???"), ("\udc80", "?"), ("naïve 漢字", "naïve 漢字")])
def test_one_function_cleans(text, shown):
    assert clean(text) == shown.replace("?", "\N{REPLACEMENT CHARACTER}")
    assert clean_lines(f"{text}\nnext".replace("a\nb", "ab")).split("\n")[-1] == "next"


def running_named(library):
    """A Python program on HAKMEM with that name, and a thread with it."""
    code = (
        "import ctypes, sys, threading, time\n"
        f"prctl = lambda: ctypes.CDLL(None).prctl(15, {NAME.encode()!r})\n"
        "prctl(); threading.Thread(target=lambda: (prctl(), bytearray(100), time.sleep(600)), daemon=True).start()\n"
        "print('ready', flush=True); time.sleep(600)")
    return subprocess.Popen(["/usr/bin/python3", "-c", code], stdout=subprocess.PIPE, text=True,
                            env=blackbox.environment({"PYTHONMALLOC": "malloc"}, preload=library))


def test_names_on_the_terminal_and_on_pages(library, tmp_path):
    process = running_named(library)
    try:
        assert process.stdout.readline() == "ready\n"
        for words in (["stats"], ["top", "--once", "--interval", "0.1"], ["explain"]):
            result = inprocess.hakmem(*words, process.pid)
            assert result.status == 0 and SHOWN in result.stdout, result.report()
            assert not [one for one in result.stdout if one < " " and one != "\n" or one in "\u202e\x9b"]
        picture = tmp_path / "top.svg"
        result = inprocess.hakmem("top", process.pid, "--svg", picture, "--interval", "0.1")
        assert result.status == 0 and "[/]" in picture.read_text().replace("&#160;", " "), result.report()
        page = tmp_path / "map.html"
        assert inprocess.hakmem("map", process.pid, "-o", page).status == 0
        assert "<b>" not in page.read_text().replace("\\u003cb>", "") and "\u202e" not in page.read_text()
    finally:
        process.kill()
        process.communicate()


def test_top_draws_a_name_that_looks_like_markup(library):
    """On the screen, in each table and the views behind it."""
    import asyncio

    from hakmem.top.app import Top
    from hakmem.live.sample import Sampler

    process = running_named(library)

    async def run():
        app = Top(Sampler(process.pid), 0.05)
        async with app.run_test(size=(150, 40)) as pilot:
            while app.sample is None:
                await pilot.pause(0.05)
            for key in ("1", "2", "enter", "escape", "3", "4", "5", "2"):
                await pilot.press(key)
                await pilot.pause(0.1)
            assert app.is_running and app.return_code is None
            text = app.export_screenshot().replace("&#160;", " ")
            assert "[/]" in text and "\x1b" not in text
    try:
        assert process.stdout.readline() == "ready\n"
        asyncio.run(run())
    finally:
        process.kill()
        process.communicate()
