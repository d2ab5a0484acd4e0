"""Protects the readers in python/hakmem, on the committed files and on fixed mutations of them (readers.py)."""

import io
import struct

import pytest
import readers
from elftools.elf.elffile import ELFFile

SEED = 1
# Mutations of each target. The reader of results needs most of its time to start.
COUNTS = {"heap": 200, "info": 150, "jit": 400, "report": 15, "symbols": 200, "linking": 200, "image": 80}


@pytest.mark.parametrize("target", readers.TARGETS)
def test_what_is_committed(target, tmp_path):
    """The first files, and files that a reader once failed on."""
    for number in range(8 if target == "heap" else 2):
        for data in readers.TARGETS[target][2]():
            assert readers.run(target, data, 2 * number + 1 if target == "report" else number, tmp_path) in (0, 1)


@pytest.mark.parametrize("target", readers.TARGETS)
def test_mutations(target, tmp_path):
    statuses = set()
    for number in range(COUNTS[target]):
        data = readers.mutation(target, SEED, number)
        try:
            statuses.add(readers.run(target, data, number or 1, tmp_path))
        except Exception as error:
            error.add_note(f"tests/stress/fuzz/readers.py {target} --seed {SEED} --number {number}")
            raise
    assert statuses == {0, 1}, "mutations that are all refused, or none of them, judge little"


def test_a_mutation_is_known_by_its_numbers():
    for target in readers.TARGETS:
        assert readers.mutation(target, 3, 7) == readers.mutation(target, 3, 7)
        assert len({readers.mutation(target, 3, number) for number in range(20)}) > 10


@pytest.mark.parametrize("target", ["symbols", "linking"])
def test_elf_files_with_parts_that_no_file_can_have(target, tmp_path):
    """Each segment and section in turn lies beyond the end of the file, or is too large for any file."""
    (whole,) = readers.TARGETS[target][2]()
    header = ELFFile(io.BytesIO(whole))
    sections = [(header["e_shoff"] + 64 * number, (24, 32)) for number in range(header["e_shnum"])]
    segments = [(header["e_phoff"] + 56 * number, (8, 32)) for number in range(header["e_phnum"])]
    for start, fields in sections + segments:
        for field in fields:
            for value in (len(whole), 2**64 - 1):
                data = bytearray(whole)
                struct.pack_into("<Q", data, start + field, value)
                assert readers.run(target, bytes(data), 0, tmp_path) in (0, 1)
