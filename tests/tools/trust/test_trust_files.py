"""Protects the tools from hostile files: profiles, binaries, and the tools that read them for us."""

import gzip
import io
import os
import re
import resource
import shutil
import struct
import sys
import time
import zlib
from pathlib import Path

import blackbox
import inprocess
import pytest
from hostile import ENVIRONMENT, hakmem, one_line

sys.path.insert(0, str(blackbox.REPOSITORY / "tests/tools/heap"))

import making  # noqa: E402

from hakmem import limits  # noqa: E402
from hakmem.doctor.elf import read_elf as read_linking  # noqa: E402
from hakmem.heap import stacks, symbolize  # noqa: E402
from hakmem.elf import ElfProblem, read_elf  # noqa: E402
from hakmem.heap.file import ProfileError, parse_profile  # noqa: E402
from hakmem.heap.profile_pb2 import Profile  # noqa: E402
from hakmem.heap.source import Address, request_of  # noqa: E402
from hakmem.serve.target import BOOT, PACKAGES  # noqa: E402
from hakmem.trace import header as trace_header  # noqa: E402
from hakmem.trace.file import read_trace  # noqa: E402
from hakmem.trace.header import TraceError  # noqa: E402

GIB = 1 << 30
STEERS = "f\x1b[31m\nError: \u202eg</script><b>"


def profile_of(tmp_path, *names, **more):
    """A profile's file with one stack of these functions."""
    made = making.Making()
    made.stack(making.named(*names), 10, 1000, 5, 500)
    for name, value in more.items():
        setattr(made.profile, name, made.text(value))
    path = tmp_path / "heap.pb.gz"
    path.write_bytes(gzip.compress(made.profile.SerializeToString()))
    return path


# ---- Profiles ----


@pytest.mark.parametrize("text", ["(a+)+", "(a|a)*b", "(" * 5000, "a{1,99999999999}", "(?P<x", "x" * 20000])
def test_an_expression_that_never_ends(tmp_path, monkeypatch, text):
    monkeypatch.setattr(stacks, "MATCH_SECONDS", 1)
    path = profile_of(tmp_path, f"{'a' * 60}c:1", "main:2", drop_frames=text)
    begun = time.monotonic()
    done = making.run(path)
    assert done.exit_code == 1 and done.stderr.startswith(
        "Error: ") and "heap.pb.gz: drop_frames" in done.stderr, done.output
    assert time.monotonic() - begun < blackbox.HANG


def test_gzip_that_becomes_much(tmp_path):
    """Half a MiB unpacks to half a GiB: one text, or the smallest possible parts."""
    for name, data in (("text", bytes(1 << 19)), ("samples", b"\x12\0" * (1 << 18)), ("labels", b"\x1a\0" * (1 << 18))):
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) * (1 << 10))
        assert path.stat().st_size < 1 << 20
        limit = {resource.RLIMIT_AS: GIB}
        assert str(path) in one_line(hakmem("heap", path, limits=limit)), name


@pytest.mark.parametrize("field", [2, 4])
def test_parts_that_take_much_memory(tmp_path, field):
    """Unpacked, 8 MiB of the smallest parts, or one part with as many inside."""
    path = tmp_path / "many"
    parts = bytes([field << 3 | 2, 0]) * (8 << 19)
    for data in (parts, bytes([field << 3 | 2, 0x80, 0x80, 0x80, 0x10]) + (b"\x1a\0" if field == 2 else b"\x22\0") *
                 (1 << 24)):
        path.write_bytes(data)
        assert str(path) in one_line(hakmem("heap", path, limits={resource.RLIMIT_AS: 2 * GIB}))


def test_a_file_without_end():
    assert "/dev/zero" in one_line(hakmem("heap", "/dev/zero", limits={resource.RLIMIT_AS: 2 * GIB}))


def test_a_negative_lifetime(tmp_path):
    made = making.Making(making.TYPES_WITH_LIVES)
    for lived in (-(1 << 63), -1, 0, (1 << 63) - 1):
        location = made.location((("f", "f.c", 1),))
        sample = made.profile.sample.add(location_id=[location], value=[0, 0, 0, 0, -5, -(1 << 63)])
        sample.label.add(key=made.text("lifetime_from"), num=lived, num_unit=made.text("milliseconds"))
    made.profile.time_nanos = -(1 << 63)
    path = tmp_path / "heap.pb"
    path.write_bytes(made.profile.SerializeToString())
    for words in ([], ["--lifetimes"], ["--json"], ["--tree"], ["--html", tmp_path / "page.html"]):
        assert making.run(path, *words).exit_code == 0, words


def test_names_steer_nothing(tmp_path):
    path = profile_of(tmp_path, f"{STEERS}:1", "main:2")
    profile = parse_profile(path.read_bytes(), path)
    profile.comment.append(0)
    profile.string_table.append(STEERS)
    profile.comment[0] = len(profile.string_table) - 1
    profile.mapping.add(id=1, memory_limit=1, filename=len(profile.string_table) - 1)
    profile.location.add(id=99, address=0, mapping_id=1)
    profile.sample.add(location_id=[99], value=[1, 1, 1, 1])
    path.write_bytes(profile.SerializeToString())
    page = tmp_path / "page.html"
    for words in ([], ["--tree"], ["--lines"], ["--html", page]):
        result = inprocess.hakmem("heap", path, *words)
        assert result.status == 0, result.report()
        for text in (result.stdout, result.stderr):
            assert not set(text) & set("\x1b\u202e") and not [
                line for line in text.splitlines() if line.startswith("Error")
            ]
    text = page.read_text()
    assert "\u202e" not in text and "\x1b" not in text and "</script><b>" not in text and "\\u003c/script>" in text


def test_a_servers_token_is_told_to_it_alone():
    address = Address("http://hakmem:secret@127.0.0.1:1/debug/pprof/heap?seconds=1&token=secret")
    assert str(address) == address.name == "http://127.0.0.1:1/debug/pprof/heap?seconds=1"
    request = request_of("http://hakmem:se%63ret@127.0.0.1:1/x")
    assert request.full_url == "http://127.0.0.1:1/x"
    assert request.unredirected_hdrs == {"Authorization": "Basic aGFrbWVtOnNlY3JldA=="}
    result = inprocess.hakmem("heap", "http://hakmem:secret@127.0.0.1:1/x")
    assert "secret" not in result.stderr and "http://127.0.0.1:1/x" in one_line(result)


# ---- Binaries ----


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    """A program with two functions and their lines."""
    folder = tmp_path_factory.mktemp("binary")
    source = folder / "two.cpp"
    source.write_text("namespace a { int f(int x) { return x + 1; } }\nint main() { return a::f(1); }\n")
    return blackbox.compile_program(source, folder / "two", "-g", "-Wl,--build-id")


def changed(binary, old, new):
    data = binary.read_bytes()
    assert old in data
    made = binary.with_name("changed")
    made.write_bytes(data.replace(old, new))
    return made


def test_line_ends_in_a_symbol(binary):
    """c++filt gets one name a line, so an extra line would shift all following names."""
    elf = read_elf(changed(binary, b"_ZN1a1fEi\0", b"_Z\n1\x1b1fE\n\0"))
    names = [elf.symbols.name(entry) for entry in elf.symbols.table]
    assert any("\N{REPLACEMENT CHARACTER}" in name for name in names) and all(map(str.isprintable, names))
    shown = symbolize.demangle({"_ZN1a1fEi", "_Z\n1a1fE\n", "_Z1gv", "plain"})
    assert shown == {"_ZN1a1fEi": "a::f(int)", "_Z\n1a1fE\n": "_Z\n1a1fE\n", "_Z1gv": "g()", "plain": "plain"}


@pytest.mark.parametrize("place, value, size", [
    (58, 0, 2), (60, 0, 2), (60, 0xFFFF, 2), (54, 0, 2), (56, 0xFFFF, 2), (40, 1 << 63, 8), (32, 1 << 63, 8)])
def test_tables_of_any_number_of_parts(binary, place, value, size):
    """With no bytes for a section, 2^64 of them would fit in the file."""
    data = bytearray(binary.read_bytes())
    first = int.from_bytes(data[40:48], "little")
    struct.pack_into("<Q", data, first + 32, (1 << 64) - 1)  # the number of sections, when the head has none
    data[place:place + size] = value.to_bytes(size, "little")
    path = binary.with_name("damaged")
    path.write_bytes(data)
    begun = time.monotonic()
    try:
        read_elf(path)
    except ElfProblem as problem:
        assert str(problem).isprintable()
    try:
        read_linking(io.BytesIO(bytes(data)))
    except ValueError as problem:
        assert str(problem).isprintable()
    assert time.monotonic() - begun < blackbox.HANG


def test_a_packed_symbol_table_is_not_unpacked(binary):
    """SHF_COMPRESSED: the unpacked size is unknown."""
    from elftools.elf.elffile import ELFFile

    data = bytearray(binary.read_bytes())
    elf = ELFFile(io.BytesIO(bytes(data)))
    number = elf.get_section_index(".symtab")
    at = elf["e_shoff"] + number * elf["e_shentsize"] + 8
    struct.pack_into("<Q", data, at, 1 << 11)
    path = binary.with_name("packed")
    path.write_bytes(data)
    with pytest.raises(ElfProblem):
        read_elf(path)


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """tool(text) replaces llvm-symbolizer by a program that acts as if a binary had taken it over."""
    def put(text):
        path = tmp_path / "bin/llvm-symbolizer"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/python3\n{text}")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return put


def names_of(binary):
    """(notes, names) for the functions of a profile with an address in main."""
    elf = read_elf(binary)
    address = next(entry.value for entry in elf.symbols.table if elf.symbols.name(entry) == "main") + 4
    notes = []
    frames = symbolize.find_frames(elf, elf, [address], notes)
    return notes, [frame for chain in frames.values() for frame in chain]


def test_the_symbolizer_tells_lines(binary):
    notes, frames = names_of(binary)
    assert notes == [] and (frames[0].name, frames[0].line, Path(frames[0].file).name) == ("main", 2, "two.cpp")


@pytest.mark.parametrize("text, said", [
    ("import time; time.sleep(600)", "1 seconds"), ("bytearray(1 << 34)", "status 1"),
    ("while True: print('x' * 100000)", "llvm-symbolizer"), ("import os; os.abort()", "signal 6"),
    ("import sys; sys.exit('\\x1b[31m\\n no')", "status 1")])
def test_a_symbolizer_that_goes_wild(binary, tool, monkeypatch, text, said):
    """The tool is ended, names come from the symbol table, and a note says what is missing."""
    monkeypatch.setattr(limits, "TOOL_SECONDS", 1 if "sleep" in text else blackbox.HANG)
    monkeypatch.setattr(limits, "TOOL_OUTPUT", 1 << 20)
    tool(text)
    notes, frames = names_of(binary)
    assert [frame.name for frame in frames] == ["main"] and not frames[0].file
    assert len(notes) == 1 and said in notes[0] and notes[0].isprintable()


def test_a_symbolizer_ends_with_us(binary, tool, tmp_path):
    """As when serve ends a late worker."""
    tool(f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    child = os.fork()
    if not child:
        try:
            names_of(binary)
        finally:
            os._exit(0)
    end = time.monotonic() + blackbox.HANG
    while not (tmp_path / "pid").exists() or not (pid := (tmp_path / "pid").read_text()):
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    blackbox.wait_for(lambda: blackbox.has_ended(pid), "its end")


@pytest.mark.parametrize("text", ["print('no JSON')", "print('[]')",
                                  "print('{\"Address\": \"x\", \"Symbol\": [1]}')", "print('1')",
                                  "print('[' * 100000)", "import sys; sys.stdout.buffer.write(b'\\xff\\n')"])
def test_a_symbolizer_that_tells_nonsense(binary, tool, text):
    tool(text)
    notes, frames = names_of(binary)
    assert notes == [] and [frame.name for frame in frames] == ["main"]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user, which needs root")
def test_the_symbolizer_has_the_rights_of_the_files_owner(binary, tool, tmp_path):
    """A binary that takes it over gets only its owner's rights, and nothing of our environment."""
    told = tmp_path / "told"
    told.mkdir()
    told.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    tool(f"import os, resource, sys\nopen({str(told)!r} + '/file', 'w').write(repr([os.getuid(), os.getgid(), "
         "os.getgroups(), "
         "sorted(os.environ), resource.getrlimit(resource.RLIMIT_AS)[0], open(sys.argv[1].partition('=')[2], "
         "'rb').read(4)]))")
    path = binary.with_name("owned")
    shutil.copy(binary, path)
    os.environ["SECRET"] = "x"
    try:
        for uid, gid in ((65534, 65534), (0, 0)):
            os.chown(path, uid, gid)
            names_of(path)
            found = eval((told / "file").read_text(), {})  # a list that this test's own program wrote
            assert found[:2] == [uid, gid] and (uid == 0 or found[2] == [])
            assert "SECRET" not in found[3] and found[4] == limits.TOOL_SPACE and found[5] == b"\x7fELF"
            (told / "file").unlink()
    finally:
        del os.environ["SECRET"]


def test_a_note_that_is_no_build_id(binary):
    """A build-id becomes part of a path."""
    elf = read_elf(binary)
    assert len(elf.build_id) == 40 and set(elf.build_id) <= set("0123456789abcdef")
    profile = Profile(string_table=["", "/etc/passwd", "../../x\x1b"])
    profile.mapping.add(id=1, memory_limit=1 << 20, filename=1, build_id=2)
    profile.location.add(id=1, address=16, mapping_id=1)
    notes = symbolize.symbolize(profile)
    assert len(notes) == 1 and notes[0].isprintable() and "/etc/passwd" in notes[0]


def test_what_is_no_profile():
    for data in (b"\x1f\x8b", b"\x1f\x8b\x08" + bytes(100), gzip.compress(b"")[:-4], b"\xff" * 100,
                 b"\x0a\xff\xff\xff\xff\x7f"):
        with pytest.raises(ProfileError) as caught:
            parse_profile(data, "name")
        assert "\n" not in caught.value.message


# ---- Traces ----


@pytest.mark.parametrize("text, told", [
    (b"[" * 100000, None), (b"[1]", None), (b"9" * 5000, None),
    (b'{"command": 5, "status": "x", "file": "y", "calls": {}}', {}),
    (b'{"command": "a\\u001b[31m\\n", "status": 1, "date": []}', {"command": "a\ufffd[31m\ufffd", "status": 1})])
def test_what_a_trace_says_of_its_run(tmp_path, text, told):
    path = tmp_path / "trace"
    data = bytearray((blackbox.REPOSITORY / "tests/stress/fuzz/corpus/info/nothing.trace").read_bytes())
    header = trace_header.read_header(blackbox.REPOSITORY / "tests/stress/fuzz/corpus/info/nothing.trace")
    data[len(data) - header.text_bytes:] = text
    fields = list(trace_header.HEADER.unpack(data[:trace_header.HEADER.size]))
    fields[3], fields[3 + list(vars(header)).index("text_bytes")] = len(data), len(text)
    data[:trace_header.HEADER.size] = trace_header.HEADER.pack(*fields)
    struct.pack_into("<I", data, 12, zlib.crc32(data[16:]))
    path.write_bytes(data)
    if told is None:
        with pytest.raises(TraceError, match=str(path)):
            read_trace(path)
    else:
        assert read_trace(path).about == told
        assert inprocess.hakmem("trace", "info", path).status == 0


# ---- The folder in which a command starts ----


def test_modules_of_the_current_folder_are_not_imported(tmp_path, honest):
    """Neither by ./hakmem nor by serve's workers."""
    for name in ("click", "json", "hakmem", "google", "elftools"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken over')\n")
    script = "".join(path.read_text() for path in (blackbox.REPOSITORY / "tools/command").glob("*.sh"))
    launch = re.search(r"^launch='([^']*)'$", script, re.M)[1]
    assert '-m hakmem "$' not in script
    done = blackbox.run([sys.executable, "-c", launch, "--version"], env=ENVIRONMENT, cwd=tmp_path)
    assert done.status == 0 and done.stdout.startswith("hakmem "), done.report()
    done = blackbox.run(
        [sys.executable, "-c", BOOT, PACKAGES, honest, os.getpid(), 0], env=ENVIRONMENT, cwd=tmp_path, stdin="")
    assert done.status == 0 and done.stdout.startswith("J"), done.report()
