"""Protects short names, and names of code made at run time, from perf's maps and jitdumps."""

import os
import struct
import subprocess
import sys
import time

import pytest
from making import Making, run

from hakmem.heap.jit import Made, made_of, read_dump, read_map
from hakmem.heap.names import shortened
from hakmem.heap.symbolize import MADE, OTHER, STRIPPED, Note, summary
from hakmem.foreign import open_regular

CODE = 0x7000_0000_0000


@pytest.mark.parametrize("name, short", [
    ("orchard::Basket<std::__cxx11::basic_string<char, std::char_traits<char> > >::fill(int)",
     "orchard::Basket<...>::fill"),
    ("(anonymous namespace)::hidden(int)", "(anonymous namespace)::hidden"),
    ("void std::sort<int*>(int*, int*)", "std::sort<...>"),
    ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda#1}::operator()"),
    ("std::vector<int>::operator[](unsigned long) const", "std::vector<...>::operator[]"),
    ("std::ostream& std::operator<< <char>(std::ostream&, char)", "std::operator<<<...>"),
    ("A::operator std::vector<int>() const", "A::operator std::vector<int>"),
    ("foo::operator<(foo const&)", "foo::operator<"), ("foo::operator-><int>() const", "foo::operator-><...>"),
    ("operator new[](unsigned long)", "operator new[]"), ("a::b<(x > 3)>::c()", "a::b<...>::c"),
    ("non-virtual thunk to A<int>::f()", "A<...>::f"), ("f(int) [clone .part.0] [clone .cold]", "f"),
    ("<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop::h0123456789abcdef",
     "<alloc::vec::Vec<...> as core::ops::drop::Drop>::drop"),
    ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place::<...>"),
    ("mycrate[0123456789abcdef]::foo::{closure#0}", "mycrate::foo::{closure#0}"),
    ("<mycrate::Foo<u8>>::bar", "<mycrate::Foo<...>>::bar"),
    ("broken<(", "broken<("), ("a" * 20000 + "(int)", "a" * 20000 + "(int)"), ("x" + "<" * 5000, "x" + "<" * 5000)])
def test_short_names(name, short):
    assert shortened(name) == short


def of_linker(*names):
    """A profile with one stack of functions with C++ and Go names."""
    making = Making().stack([((name, "/src/a.cc", 3),) for name in names], 1, 64, 1, 64)
    for function in making.profile.function:
        name = making.profile.string_table[function.name]
        function.system_name = making.text("_ZN" + name if "::" in name else name)
    return making


def test_full_names_on_request(tmp_path):
    path = of_linker("a::f<int>(int)", "main.(*Server).run").write(tmp_path / "a")
    assert "a::f<...>" in run(path).stdout and "a::f<int>(int)" in run(path, "--full").stdout
    assert "main.(*Server).run" in run(path).stdout
    assert '"a::f<int>(int)"' in run(path, "--json").stdout
    assert "a::f<...>" in run(path, "--focus", r"f<int>\(int\)").stdout


# ---- perf maps ----


@pytest.mark.parametrize("text, made",
                         [("py::work:/app/tasks.py", Made("work", "/app/tasks.py")),
                          ("JS:*handle /app/server.js:12:3", Made("handle", "/app/server.js", 12)),
                          ("LazyCompile:~ node:internal/process:7", Made("(anonymous)", "node:internal/process", 7)),
                          ("Lcom/shop/Cart;::add", Made("Lcom/shop/Cart;::add"))])
def test_names_of_makers(text, made):
    assert made_of(text) == made


def reading(read, data, tmp_path, *addresses):
    (tmp_path / "map").write_bytes(data)
    with open_regular(tmp_path / "map") as file:
        return read(file, sorted(addresses))


def test_a_map(tmp_path):
    data = (b"7f00 100 older\n7f00 80 newer\nnonsense\n\xff\xff 1 x\n" b"8000 10 \x1b[31mred\x1b\n"
            b"ffffffffffffffff ffffffffffffffff edge\n9000 10 " + b"n" * 70000 + b"\n9100 10 last")
    found = reading(read_map, data, tmp_path, 0x7F00, 0x7F80, 0x8000, 0x8010, 0x9000, 0x9105)
    assert {address: made.name for address, made in found.items()} == {
        0x7F00: "newer", 0x7F80: "older", 0x8000: "\ufffd[31mred\ufffd", 0x9105: "last"}


def mapped(number):
    """A profile of a process with one address in memory without a file."""
    making = Making()
    making.profile.comment.append(making.text(f"process {number}"))
    making.profile.time_nanos = time.time_ns()
    making.mapping(CODE, CODE + 0x1000, 0, "[anon]")
    return making.stack([CODE + 0x10], 1, 64, 1, 64)


@pytest.fixture
def perf_map():
    """perf's map of an ended process, whose number nobody has."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    path = f"/tmp/perf-{ended.pid}.map"
    with open(path, "w") as file:
        file.write(f"{CODE:x} 40 py::work:/app/tasks.py\n")
    yield ended.pid, path
    os.unlink(path)


def test_a_profile_of_a_process_that_left_a_map(perf_map, tmp_path):
    number, path = perf_map
    profile = mapped(number).write(tmp_path / "a")
    done = run(profile)
    assert "work" in done.stdout and "/app/tasks.py" in done.stdout and done.stderr == ""
    os.chmod(path, 0o600)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)  # a map of another user is ignored
        done = run(profile)
        assert "work" not in done.stdout and done.stderr
        os.chown(profile, 12345, 12345)  # unless the profile is that user's, too
        assert "work" in run(profile).stdout
    os.unlink(path)
    os.mkfifo(path)  # a named pipe is no file, and must not be waited for
    assert "work" not in run(profile).stdout


def test_a_process_that_runs_has_its_own_map(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        path = f"/tmp/perf-{process.pid}.map"
        try:
            with open(path, "w") as file:
                file.write(f"{CODE:x} 40 work\n")
            making = mapped(process.pid)
            assert "work" in run(making.write(tmp_path / "a")).stdout
            making.profile.time_nanos = 1_000_000_000  # long before the process that has the number now
            assert "work" not in run(making.write(tmp_path / "b")).stdout
        finally:
            os.unlink(path)
            process.kill()


# ---- jitdump ----


def record(kind, data):
    return struct.pack("<IIQ", kind, 16 + len(data), 0) + data


def loaded(start, size, name):
    return record(0, struct.pack("<IIQQQQ", 1, 1, start, start, size, 0) + name + b"\0" + bytes(size))


def jitdump(*records):
    return struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 1, 0, 0) + b"".join(records)


def test_a_jitdump(tmp_path):
    lines = record(2, struct.pack("<QQ", 0x7F00, 2) + struct.pack("<QII", 0x7F00, 3, 0) + b"/a.js\0" +
                   struct.pack("<QII", 0x7F20, 5, 0) + b"\xff\0")
    data = jitdump(lines, loaded(0x7F00, 0x40, b"first"), loaded(0x8000, 16, b"second"),
                   record(1, struct.pack("<IIQQQQQ", 1, 1, 0, 0x8000, 0x9000, 16, 0)))
    assert reading(read_dump, data, tmp_path, 0x7F10, 0x7F20, 0x7F40, 0x9004) == {
        0x7F10: Made("first", "/a.js", 3), 0x7F20: Made("first", "/a.js", 5), 0x9004: Made("second")}
    for end in range(0, len(data), 7):  # a file that its maker is still writing
        reading(read_dump, data[:end], tmp_path, 0x7F10, 0x9004)


def test_a_jitdump_among_the_mappings(tmp_path):
    (tmp_path / "jit-77.dump").write_bytes(jitdump(loaded(CODE, 64, b"LazyCompile:*sum /app/s.js:4:1")))
    making = mapped(77)
    making.mapping(CODE + 0x5000, CODE + 0x6000, 0, str(tmp_path / "jit-77.dump"))
    done = run(making.write(tmp_path / "a"))
    assert "sum" in done.stdout and "/app/s.js:4" in done.stdout


# ---- What is missing ----


def test_one_line_says_what_is_missing():
    notes = [Note(f"/lib/{name}: long", STRIPPED, name) for name in ("a.so", "b.so", "c.so", "d.so")]
    notes += [Note("x", OTHER, "app"), Note("y", MADE, "3 addresses")]
    line = summary(notes)
    assert all(word in line for word in ("a.so", "b.so", "c.so", "1 more", "app", "3 addresses", "--notes"))
    assert "\n" not in line and "d.so" not in line and len(line) < 400
    assert summary(notes[:1]) == "/lib/a.so: long" and summary([]) == ""
