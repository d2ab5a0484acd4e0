"""Protects how the tools write numbers of bytes: few digits, the right unit, and a text for each number."""

import pytest

from hakmem.units import bytes_column, bytes_exact, bytes_text

EXPECTED = [  # bytes, in a sentence, in a column
    (0, "0 B", "0 B"), (1, "1 B", "1 B"), (1023, "1023 B", "1,023 B"), (1024, "1 KiB", "1.00 KiB"),
    (1536, "1.5 KiB", "1.50 KiB"), (10235, "9.995 KiB", "10.0 KiB"), (1023 << 10, "1023 KiB", "1.00 MiB"),
    (1 << 20, "1 MiB", "1.00 MiB"), (18161336, "17.32 MiB", "17.3 MiB"), (150 << 20, "150 MiB", "150 MiB"),
    (12345 << 30, "12.06 TiB", "12.1 TiB"), (5 << 50, "5 PiB", "5.00 PiB"), ((1 << 64) - 1, "16 EiB", "16.0 EiB"),
    (1 << 74, "16384 EiB", "16,384 EiB"), (-2048, "-2 KiB", "-2.00 KiB"), (999.6 * (1 << 30), "999.6 GiB", "1,000 GiB"),
    (12.5, "12 B", "12 B")]


@pytest.mark.parametrize(("count", "text", "column"), EXPECTED)
def test_texts(count, text, column):
    assert (bytes_text(count), bytes_column(count)) == (text, column)


def test_a_column_is_narrow():
    """No figure of a column has more than three digits and a point, but bytes and what nobody has."""
    for power in range(10, 66):
        for count in ((1 << power) - 1, 1 << power, (1 << power) * 999 // 1000, (1 << power) * 997 // 1024):
            digits = bytes_column(count).split()[0]
            assert count < 1024 or len(digits.replace(".", "").replace(",", "")) <= 4, (count, digits)


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (16, "16 B"), (1000, "1000 B"), (1025, "1025 B"),
                                             (4096, "4 KiB"), (5000, "5000 B"), (1536 << 10, "1536 KiB"),
                                             (1 << 20, "1 MiB"), (1 << 30, "1 GiB")])
def test_a_name_is_exact(count, text):
    assert bytes_exact(count) == text
