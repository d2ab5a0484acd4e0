"""Protects the map from sentences of docs/misuse.md, by their first words, to tests that fail when they are false."""

import re
from pathlib import Path

import blackbox

PAGE = blackbox.REPOSITORY / "docs/misuse.md"
HERE = Path(__file__).resolve().parent
FILES = [*sorted(HERE.glob("test_*.py")), *sorted((HERE.parent / "hardening").rglob("test_*.py"))]
POINTS_ON = "says where more is told"
SUITE = "test_each_case"

SENTENCES = {
    "This page says": POINTS_ON,
    "[hardening.md]": POINTS_ON,
    "HAKMEM keeps no metadata": ["test_each_attack", "test_write_after_free_one_size"],
    "So a write after free changes": ["test_write_after_free_one_size", "test_write_after_free_threads"],
    "That holds by construction": ["test_write_after_free_threads"],
    "A write past a block's end": [SUITE],
    "It reaches HAKMEM's own memory": ["test_each_attack"],
    "When a program misuses the functions": ["test_second_free_directly_after_the_first"],
    "The line names the function": ["test_second_free_directly_after_the_first", "test_block_gone_from_the_cache"],
    "With `HAKMEM_ABORT_ON_MISUSE=0`": ["test_second_free_directly_after_the_first", "test_late_misuse_told_to_go_on"],
    "If misuse is found when a block leaves": ["test_caught_when_the_block_leaves_the_cache"],
    "[misuse-table.md]": POINTS_ON,
    "[attacks.md]": POINTS_ON,
    "an address that HAKMEM never gave out": ["test_address_of_nobody"],
    "an address that is not a multiple of 16": ["test_unaligned", "test_unaligned_to_every_function"],
    "a block whose slab is gone": ["test_block_gone_from_the_cache"],
    "a huge block (above 1 MiB)": ["test_second_free_directly_after_the_first", "test_block_gone_from_the_cache",
                                   "test_blocks_that_no_cache_takes"],
    "a second free directly after": ["test_second_free_directly_after_the_first"],
    "a block that is free in its slab, and": ["test_functions_that_look_at_the_slab"],
    "an address inside a block above 64 KiB": ["test_inside_a_span_behind_its_first_unit"],
    "a block of a first-class heap": ["test_blocks_that_no_cache_takes", "test_blocks_of_first_class_heaps"],
    "a second free with one or two": ["test_repeated_with_another_between"],
    "a size or alignment that cannot": ["test_wrong_size"],
    "A bin is full after two": ["test_repeated_with_another_between"],
    "There HAKMEM catches a second free": ["test_repeated_with_another_between"],
    "A sized free makes the check": ["test_wrong_size"],
    "It compares the size": ["test_wrong_size"],
    "So it catches a block that is free": ["test_sized_free_of_what_is_no_live_block"],
    "The size given to a sized `operator delete`": [SUITE],
    "`free`, sized or not, makes": ["test_unaligned", "test_inside_a_span_behind_its_first_unit"],
    "The rest is checked when": ["test_caught_when_the_block_leaves_the_cache"],
    "A tick also empties": ["test_caught_when_the_block_leaves_the_cache"],
    "The end of the process": ["test_the_end_of_the_process_finds_nothing"],
    "Caught this way are": ["test_caught_when_the_block_leaves_the_cache"],
    "a pointer inside a block, at a multiple": ["test_caught_when_the_block_leaves_the_cache"],
    "a block freed again, after": ["test_caught_when_the_block_leaves_the_cache"],
    "a block freed again by another thread": ["test_freed_by_two_threads"],
    "Until then a block that was freed twice": [SUITE],
    "Such a program overwrites": [SUITE],
    "For example, a block up to 1 MiB": ["test_usual_build_catches_it_at_the_flush"],
    "HAKMEM catches that when the block leaves": ["test_usual_build_catches_it_at_the_flush"],
    "To catch it at the call": ["test_checking_build_catches_it_at_the_call"],
    "A build with the constant `CHECK_EVERY_FREE`": ["test_checking_build_catches_it_at_the_call",
                                                     "test_checking_build_runs_programs"],
    "A free of a block that was freed and then": ["test_what_looks_alive", SUITE],
    "`malloc_usable_size` of a block that waits": ["test_what_looks_alive"],
    "A function of another family": [SUITE],
    "Reads and writes after free, overruns": [SUITE],
}


def sentences():
    """The page's prose, the table cells that name a misuse, and list items, without headings and code."""
    text = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    found = []
    for part in re.split(r"\n\n+|\n(?=- )|\n(?=\|)", text):
        part = " ".join(part.split())
        if part.startswith("|"):
            cell = part.split("|")[1].strip()
            found += [] if cell == "misuse" or set(cell) <= set("-") else [cell]
        elif part and not part.startswith("#"):
            found += re.split(r"(?<=[.]) (?=[A-Z`\[])", part.removeprefix("- "))
    return found


def test_each_sentence_has_its_tests():
    known = "\n".join(file.read_text() for file in FILES if file.exists())
    beginnings = []
    for sentence in sentences():
        fitting = [beginning for beginning in SENTENCES if sentence.startswith(beginning)]
        assert len(fitting) == 1, f"docs/misuse.md says {sentence!r}: name the tests that hold it to that in {__file__}"
        beginnings += fitting
    assert sorted(beginnings) == sorted(SENTENCES), f"no longer said: {set(SENTENCES) - set(beginnings)}"
    for tests in SENTENCES.values():
        for test in tests if tests is not POINTS_ON else []:
            assert re.search(rf"\b{test}\(", known), f"there is no test {test}"
