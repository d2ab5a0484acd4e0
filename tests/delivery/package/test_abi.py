"""Protects the interface (tools/check_abi.py): this library against the last release, and libraries that break it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import check_abi

LIBRARY = Path(os.environ["HAKMEM_BUILD_DIR"]) / "lib/libhakmem.so"


def edit(file: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, file.read_text(), flags=re.MULTILINE)
    assert count == 1, (file, pattern)
    file.write_text(text)


@pytest.fixture
def sources(tmp_path):
    """The sources of the one-file source, to be changed."""
    for folder in "include", "src":
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "LICENSE", tmp_path)
    (tmp_path / "tools").mkdir()
    for file in (ROOT / "tools").glob("*.py"):
        shutil.copy(file, tmp_path / "tools")
    return tmp_path


def test_the_library_has_all_that_the_last_release_had():
    done = subprocess.run([sys.executable, ROOT / "tools/check_abi.py", "--library", LIBRARY], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_name_that_is_gone_is_found(tmp_path):
    names = check_abi.exported_names(LIBRARY) - {"hak_free_batch"}
    source, library = tmp_path / "names.s", tmp_path / "names.so"
    source.write_text("".join(f".globl {name}\n{name}:\n" for name in sorted(names)) + '.section .note.GNU-stack\n')
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", library, source], check=True)
    assert check_abi.missing_names(library) == ["names.so exports hak_free_batch no more"]


@pytest.mark.parametrize("name, least", [("libhakmem-je", 20), ("libhakmem-secure", 51), ("libhakmem-tc", 30)])
def test_debian_knows_the_names_beyond_the_librarys(name, least):
    """Debian's symbols file lists a library's names beyond libhakmem.so. A release adds the new ones."""
    own = check_abi.exported_names(LIBRARY)
    wanted = check_abi.exported_names(LIBRARY.with_name(f"{name}.so")) - own
    assert len(wanted) >= least and set(check_abi.released_names(name)) - own == wanted


def test_a_changed_interface_is_found(sources):
    stats = sources / "include/hakmem/stats.h"
    # A field inserted in a struct, of which hak_stats holds four; a moved field; a constant; a type.
    edit(stats, r"^(struct hak_stats_pool \{)$", r"\1\n    uint64_t more;")
    edit(stats, r"^(    uint64_t address;)\n(    uint64_t tier;.*)$", r"\2\n\1")
    edit(stats, r"HAK_STATS_FIRST_CLASS,", "HAK_STATS_FIRST_CLASS = 7,")
    edit(sources / "include/hakmem/hakmem.h", r"(hak_pressure_handler\)\(size_t bytes_mapped, )size_t", r"\1int")
    found = check_abi.changed_headers(sources)
    assert "hak_set_pressure_handler" in found[0] and "'typedef size_t' changed" in found[0]
    assert {"struct hak_stats: medium was [216, 'hak_stats_pool', 64], is [224, 'hak_stats_pool', 72]",
            "struct hak_stats_pool: slabs was [0, 'uint64_t', 8], is [8, 'uint64_t', 8]",
            "struct hak_stats_superslab: tier was [16, 'uint64_t', 8], is [8, 'uint64_t', 8]",
            "enum hak_stats_heap_kind: HAK_STATS_FIRST_CLASS was 2, is 7"} <= set(found[1:])


def test_structs_may_grow_at_their_end(sources):
    edit(sources / "include/hakmem/stats.h", r"^(    uint64_t huge_pages;.*)$", r"\1\n    uint64_t more;")
    assert check_abi.changed_headers(sources) == []
