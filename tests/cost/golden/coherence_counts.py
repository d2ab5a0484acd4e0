"""What virtual cores wait for each other, with the library built once more for counting."""

from subject import CheckError

ROWS = {f"{pattern} {cores}": (pattern, cores) for pattern, cores in (
    ("messages", 64), ("larson", 64), ("churn", 64), ("batches", 64), ("batches", 256), ("large", 16))}
NAMES = tuple(ROWS)
COLUMNS = ("transfers", "remote", "locks", "hold", "calls")
SHARE, LEAST = 1.5, 0.002


def measure_coherence(_subject, wanted=None):
    from hakmem.bench import coherence  # noqa: PLC0415: it needs what builds peers, and no other check does

    library = coherence.library_of(coherence.OURS)
    rows = {}
    for name, (pattern, cores) in ROWS.items():
        if wanted is not None and name not in wanted:
            continue
        count = coherence.measure(library, pattern, cores)
        if count is None:
            raise CheckError(f"{name}: no end after {coherence.SECONDS_MOST} s")
        rows[name] = {column: f"{count.figures[column]:.4f}" for column in COLUMNS}
    return rows


def freeze_coherence(rows):
    """The rows as the golden file has them."""
    return {row: {column: f"<={SHARE * float(value) + LEAST:.4f}" for column, value in columns.items()}
            for row, columns in rows.items()}
