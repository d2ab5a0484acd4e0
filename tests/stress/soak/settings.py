"""Random settings: values from the option table (src/options/table.h) within their ranges."""

import math
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
ROW = re.compile(r'OPTION\(\w+, "(\w+)", (\w+), (\w+), (\d+), (\d+),')

# Left out: options that make a sound program fail or print something else.
NEVER = {"HAKMEM_MEMORY_LIMIT", "HAKMEM_ABORT_ON_MISUSE", "HAKMEM_HEAP_PROFILE_SIGNAL", "HAKMEM_HEAP_PROFILE"}
# Narrower than the table's ranges, to bound the memory and time of a run.
NARROWER = {
    "HAKMEM_SS_PREWARM": (0, 8),
    "HAKMEM_PURGE_DELAY": (0, 1500),
    "HAKMEM_HEAP_PROFILE_RATE": (1 << 14, 1 << 24),
    "HAKMEM_HEAP_PROFILE_INTERVAL": (1 << 26, 1 << 32),
    "HAKMEM_ARENA_SIZE": (1 << 32, 1 << 38),
    "HAKMEM_CACHE_BYTES": (16384, 1 << 21),
}
WORDS = {
    "BOOL": ("0", "1"),
    "CHOICE": ("auto", "never", "always"),
    "FORMAT": ("0", "text", "json", "prometheus"),
    "LIMIT": ("0", "auto"),
}


def table():
    """{name: (kind, lowest, highest)} of every option."""
    text = (REPOSITORY / "src/options/table.h").read_text(encoding="utf-8")
    rows = {name: (kind, int(lowest), int(highest)) for name, kind, _, lowest, highest in ROW.findall(text)}
    assert len(rows) == text.count("    OPTION("), "a row of the table is written in another way"
    return rows


def draw(chance, folder):
    """{variable: value} for a third of the options, or for none in a third of the runs."""
    settings = {}
    if chance.randrange(3) == 0:
        return settings
    for name, (kind, lowest, highest) in table().items():
        if name in NEVER or chance.randrange(3):
            continue
        lowest, highest = NARROWER.get(name, (lowest, highest))
        if kind == "PATH":
            if name == "HAKMEM_STATS_FILE":
                settings[name] = f"{folder}/stats-%p"
            elif name == "HAKMEM_HEAP_PROFILE_UNWIND":
                settings[name] = chance.choice(("auto", "eh", "fp"))
        elif kind in WORDS:
            settings[name] = chance.choice(WORDS[kind])
        else:
            settings[name] = str(number(chance, lowest, highest))
    if chance.randrange(4) == 0:
        settings["HAKMEM_HEAP_PROFILE"] = f"{folder}/heap-%p-%n.gz"
    return settings


def number(chance, lowest, highest):
    """An end of the range, or a value between, with each doubling equally likely."""
    if chance.randrange(4) == 0:
        return chance.choice((lowest, highest))
    return min(highest, lowest + int(2 ** chance.uniform(0, math.log2(highest - lowest + 1))) - 1)
