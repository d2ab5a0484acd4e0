"""Protects names, lines and inlined functions for a real program's addresses."""

import json
import lzma
import shutil
import subprocess

import blackbox
import pytest
from conftest import SOURCE, build, line_of
from making import Making, observed, read, run

from hakmem.elf import read_elf
from hakmem.heap.symbolize import demangle

FILL = "orchard::Basket<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >::fill(int)"
HIDDEN = "(anonymous namespace)::hidden(int)"
BASKET_STACK = [("pick_inlined", "inlined"), (FILL, "fill"), ("plain_c", "plain"), ("main", "main")]


def stacks_of(path, *arguments):
    """[[(name, line)] of each stack, innermost first, without frames below main]; and the notes."""
    done = run(path, "--json", "--notes", *arguments)
    assert done.exit_code == 0, done.output
    found = []
    for stack in json.loads(done.stdout)["stacks"]:
        names = [frame["name"] for frame in stack["frames"]]
        found.append(stack["frames"][:names.index("main") + 1] if "main" in names else stack["frames"])
    return found, done.stderr


def shown(frames):
    return [(frame["name"], frame["line"]) for frame in frames]


def wanted(stack):
    return [(name, line_of(mark)) for name, mark in stack]


def test_names_lines_and_inlined_functions(program, tmp_path):
    """The same without the profile's build-ids, which a note tells."""
    path = observed(program.path, program.build_id).write(tmp_path / "a")
    (basket, hidden), said = stacks_of(path)
    assert shown(basket) == wanted(BASKET_STACK)
    assert shown(hidden)[:3] == wanted([(HIDDEN, "hidden"), (HIDDEN, "recursion"), (HIDDEN, "recursion")])
    assert all(frame["file"] == str(SOURCE) and frame["module"] == "sites" for frame in basket)
    assert str(program.path) not in said
    output = " ".join(run(path, "--lines").stdout.split())
    assert f"10 B 33.3 % 10 B 33.3 % 1 pick_inlined {SOURCE}:{line_of('inlined')}" in output
    (basket, _), said = stacks_of(observed(program.path, "").write(tmp_path / "b"))
    assert shown(basket) == wanted(BASKET_STACK) and str(program.path) in said


def test_stripped_without_its_debug_file(stripped, tmp_path):
    path = observed(stripped.path, stripped.build_id).write(tmp_path / "a")
    (basket, _), said = stacks_of(path)
    assert basket[0]["name"].startswith("sites+0x")
    assert str(stripped.path) in said


def pack(stripped, folder, change=lambda data: data):
    """Gives the program the section in which Fedora's packages have the names of functions."""
    small, packed, kept = folder / "small", folder / "packed", folder / "kept"
    kept.write_text("\n".join(functions_of(stripped.debug)))
    subprocess.run(["objcopy", "-S", "--remove-section=.comment", f"--keep-symbols={kept}", stripped.debug, small],
                   check=True)
    packed.write_bytes(change(lzma.compress(small.read_bytes(), preset=6)))
    subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={packed}", stripped.path], check=True)


def functions_of(path):
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [words[2] for line in lines if len(words := line.split()) == 3 and words[1] in "tTwW"]


def test_names_packed_in_a_stripped_file(stripped, tmp_path):
    path = observed(stripped.path, stripped.build_id).write(tmp_path / "a")
    pack(stripped, tmp_path)
    (basket, hidden), said = stacks_of(path)
    # Functions that were inlined have no symbol.
    assert [frame["name"] for frame in basket] == [FILL, "plain_c", "main"]
    assert hidden[0]["name"] == HIDDEN and hidden[0]["line"] == 0
    assert str(stripped.path) not in said


DAMAGES = {"cut": lambda data: data[:len(data) // 2], "changed": lambda data: data[:200] + b"\0" * 50 + data[250:],
           "other": lambda data: b"no xz" * 20, "empty": lambda data: lzma.compress(b""),
           "no ELF": lambda data: lzma.compress(b"\x7fELF" + bytes(500)),
           "a bomb": lambda data: lzma.compress(bytes(200 << 20), preset=0)}


def test_damaged_packed_names_are_none(stripped, tmp_path):
    path = observed(stripped.path, stripped.build_id).write(tmp_path / "a")
    whole = stripped.path.read_bytes()
    for name, damage in DAMAGES.items():
        stripped.path.write_bytes(whole)
        pack(stripped, tmp_path, damage)
        (basket, _), said = stacks_of(path)
        assert basket[0]["name"].startswith("sites+0x") and str(stripped.path) in said, name


def test_debug_file_by_build_id(stripped, tmp_path):
    path = observed(stripped.path, stripped.build_id).write(tmp_path / "a")
    folder = tmp_path / "debug" / ".build-id" / stripped.build_id[:2]
    folder.mkdir(parents=True)
    shutil.copy(stripped.debug, folder / f"{stripped.build_id[2:]}.debug")
    (basket, _), said = stacks_of(path, "--debug-dir", tmp_path / "debug")
    assert shown(basket) == wanted(BASKET_STACK)
    assert str(stripped.path) not in said


@pytest.mark.parametrize("folder", [".", ".debug"])
def test_debug_file_by_its_name(stripped, tmp_path, folder):
    home = stripped.path.parent / folder
    home.mkdir(exist_ok=True)
    shutil.copy(stripped.debug, home / stripped.debug.name)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={stripped.debug}", stripped.path], check=True)
    (basket, _), _ = stacks_of(observed(stripped.path, stripped.build_id).write(tmp_path / "a"))
    assert shown(basket) == wanted(BASKET_STACK)


def test_a_debug_file_of_another_build_is_not_used(stripped, tmp_path):
    path = observed(stripped.path, stripped.build_id).write(tmp_path / "a")
    (tmp_path / "other").mkdir()
    other = build(tmp_path / "other", "-DOTHER", "-O2")
    folder = tmp_path / "debug" / ".build-id" / stripped.build_id[:2]
    folder.mkdir(parents=True)
    shutil.copy(other.path, folder / f"{stripped.build_id[2:]}.debug")
    (basket, _), said = stacks_of(path, "--debug-dir", tmp_path / "debug")
    assert basket[0]["name"].startswith("sites+0x") and str(stripped.path) in said


def test_a_file_of_another_build_is_not_used(program, tmp_path):
    path = observed(program.path, "00" * 20).write(tmp_path / "a")
    (basket, _), said = stacks_of(path)
    assert basket[0]["name"].startswith("sites+0x")
    assert all(word in said for word in (str(program.path), program.build_id, "00" * 20))


def test_names_alone_without_llvm_symbolizer(program, tmp_path, monkeypatch):
    path = observed(program.path, program.build_id).write(tmp_path / "a")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/c++filt").symlink_to(shutil.which("c++filt"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (basket, _), said = stacks_of(path)
    assert shown(basket) == [(FILL, 0), ("plain_c", 0), ("main", 0)]
    assert "llvm-symbolizer" in said


def test_without_debug_information_there_are_names(tmp_path):
    made = build(tmp_path, "-g0")
    (basket, _), said = stacks_of(observed(made.path, made.build_id).write(tmp_path / "a"))
    assert shown(basket) == [(FILL, 0), ("plain_c", 0), ("main", 0)]
    assert str(made.path) not in said


def test_an_address_behind_a_function_has_no_name(program):
    elf = read_elf(program.path)
    names = subprocess.run(["nm", "-S", program.path], capture_output=True, text=True, check=True).stdout
    (start, size), = [[int(word, 16) for word in line.split()[:2]] for line in names.splitlines()
                      if line.endswith(" plain_c")]
    assert elf.symbols.find(start) == elf.symbols.find(start + size - 1) == "plain_c"
    assert elf.symbols.find(start + size) != "plain_c"
    assert elf.symbols.find(0) is None and elf.symbols.find(1 << 60) is None


# Assembly may leave out .size. Behind `bare` lies a function that only an unstripped file lists.
BARE = """
__asm__(".globl bare\\n.type bare, @function\\nbare: nop\\nnop\\nret");
__attribute__((noinline, used)) static int hidden(int n) { return n + 1; }
int seen(int n) { return hidden(n); }
"""


def test_a_stripped_file_names_no_hidden_function_after_the_one_before_it(tmp_path):
    source, library = tmp_path / "bare.c", tmp_path / "libbare.so"
    source.write_text(BARE)
    blackbox.compile_program(source, library, "-shared", "-fPIC", "-fno-toplevel-reorder")
    names = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    places = {line.split()[2]: int(line.split()[0], 16) for line in names.splitlines() if len(line.split()) == 3}
    assert places["bare"] < places["hidden"] < places["seen"]
    for strip in ((), ("-x",), ("-s",)):
        if strip:
            subprocess.run(["strip", *strip, library], check=True)
        symbols = read_elf(library).symbols
        assert symbols.find(places["bare"]) == "bare" and symbols.find(places["seen"] + 1) == "seen"
        assert symbols.find(places["hidden"] + 1) == (None if strip else "hidden")
        assert symbols.find(places["bare"] + 2) == (None if strip else "bare")


def test_what_is_no_elf_file_is_said(tmp_path):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    making = Making()
    making.mapping(0x1000, 0x2000, 0, str(tmp_path / "script"))
    making.mapping(0x3000, 0x4000, 0, "[vdso]")
    done = run(making.stack([0x1100, 0x3100], 1, 1, 1, 1).write(tmp_path / "a"), "--notes")
    assert f"{tmp_path}/script" in done.stderr and "[vdso]" in done.stderr


def test_demangling():
    assert demangle({"_ZN7orchard10note_stackEPKc", "_RNvNtCs1234_7mycrate3foo3bar", "main", "_Z_wrong",
                     "_ZN4core3ptr17h0123456789abcdefE"}) == {
        "_ZN7orchard10note_stackEPKc": "orchard::note_stack(char const*)",
        "_RNvNtCs1234_7mycrate3foo3bar": "mycrate::foo::bar", "main": "main", "_Z_wrong": "_Z_wrong",
        "_ZN4core3ptr17h0123456789abcdefE": "core::ptr"}


def test_symbolized_has_the_names_in_it(program, tmp_path):
    path = observed(program.path, program.build_id).write(tmp_path / "a")
    done = run(path, "--symbolized", tmp_path / "b")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/b\n"), done.output
    before, after = read(path), read(tmp_path / "b")
    assert [sample.value for sample in after.sample] == [sample.value for sample in before.sample]
    assert [location.address for location in after.location] == [location.address for location in before.location]
    text = after.string_table
    names = {text[function.name]: text[function.system_name] for function in after.function}
    assert names["pick_inlined"] == "pick_inlined" and names[FILL].startswith("_ZN7orchard6Basket")
    (mapping,) = (one for one in after.mapping if text[one.filename] == str(program.path))
    assert mapping.has_functions and mapping.has_filenames and mapping.has_line_numbers and mapping.has_inline_frames
    symbolized, _ = stacks_of(tmp_path / "b")
    assert symbolized == stacks_of(path)[0]
    again = run(tmp_path / "b", "--symbolized", tmp_path / "c")
    assert again.exit_code == 0 and read(tmp_path / "c") == after
