"""The doctor's findings: one on each line, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

# From nothing to do, to HAKMEM not working.
LEVELS = ("ok", "note", "warning", "problem")


@dataclass(frozen=True)
class Finding:
    """level: one of LEVELS. subject: what was examined. seen: what was found. advice: what to do, if anything."""

    level: str
    subject: str
    seen: str
    advice: str = ""

    def __post_init__(self) -> None:
        assert self.level in LEVELS, self.level


def exit_status(findings: Iterable[Finding]) -> int:
    """Returns 0 if every finding is ok or a note, else 1."""
    return int(any(finding.level in ("warning", "problem") for finding in findings))


def as_json(findings: Iterable[Finding], **about: object) -> dict[str, object]:
    """Returns the findings as values for JSON."""
    return {**about, "findings": [asdict(finding) for finding in findings], "status": exit_status(findings),
            "counts": {level: sum(finding.level == level for finding in findings) for level in LEVELS}}


def share_text(part: float, whole: float) -> str:
    """Returns a share in percent."""
    return f"{100 * part / whole:.0f} %"
