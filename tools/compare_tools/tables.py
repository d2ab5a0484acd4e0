"""The tables of figures in docs/dev/compare-tools.md, from figures.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def mib(size: float) -> str:
    """Bytes in MiB, with three digits."""
    size /= 1 << 20
    return f"{size:.3g} MiB" if size < 1000 else f"{size:,.0f} MiB"


def largest(functions: dict[str, list[int]], place: int = 0) -> str:
    """The function that has most by itself, or with place=1 with all that it calls; and what it has."""
    name = max(functions, key=lambda each: functions[each][place])
    return f"`{name}` {mib(functions[name][place])}"


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """[(who, what it says)] of one program."""
    alone, heaptrack, jemalloc, hakmem = (found[tool] for tool in ("alone", "heaptrack", "jemalloc", "hakmem"))
    parts, sites = hakmem["why"]["parts"], hakmem["why"]["by site"]
    holder = max(sites, key=lambda name: sites[name]["held_space"])
    yield "RSS without a tool", (f"{mib(alone['own'])} on its own allocator, {mib(alone['jemalloc'])} on jemalloc, "
                                 f"{mib(alone['hakmem'])} on HAKMEM, {mib(alone['hakmem without huge pages'])} with "
                                 "`HAKMEM_THP=never`")
    yield "RSS with a profile", f"{mib(jemalloc['rss'])} on jemalloc, {mib(hakmem['rss'])} on HAKMEM"
    yield "heaptrack", (f"{heaptrack['calls']:,} calls; peak {mib(heaptrack['peak'])}, most by "
                        f"{largest(heaptrack['peak by function'])}; left at the end {mib(heaptrack['left'])}, most by "
                        f"{largest(heaptrack['left by function'])}")
    if "memray" in found:
        memray = found["memray"]
        yield "memray", (f"{memray['calls']:,} calls; peak {mib(memray['peak'])}, most by "
                         f"{largest(memray['peak by function'])}")
    yield "jeprof", f"in use {mib(jemalloc['in use'])}, most by {largest(jemalloc['by function'])}"
    yield "pprof, of HAKMEM's profile", (f"in use {mib(hakmem['pprof']['in use'])}, most by "
                                         f"{largest(hakmem['pprof']['by function'])}")
    yield "`hakmem heap`", f"in use {mib(hakmem['in use'])}, most by {largest(hakmem['by function'])}"
    yield "`hakmem heap --why`", (
        f"RSS {mib(parts['= Rss'])}: live {mib(parts['= live'])}, of which {mib(parts['rounding'])} is rounding; "
        f"never written {mib(-parts['untouched'])}; held {mib(parts['held'])}, most by `{holder}` "
        f"{mib(sites[holder]['held_space'])}; free in slabs {mib(parts['free in slabs'])}; metadata "
        f"{mib(parts['metadata'])}; other memory {mib(parts['other memory'])}")


def table(found: dict[str, Any]) -> str:
    """A program's table in Markdown."""
    return "\n".join(["| tool | figures |", "|---|---|", *(f"| {who} | {what} |" for who, what in rows(found))])


def versions(found: dict[str, Any]) -> str:
    """What ran, and where, in Markdown."""
    one = found["versions"]
    said = {name: re.sub(r"^\d+:|-[^-]*$", "", version) for name, version in one["packages"].items()}
    return (f"The figures are of {one['date']}, on Debian {one['debian']}, {one['machine']}, Linux {one['kernel']}, "
            f"huge pages {one['huge pages']}:\nheaptrack {said['heaptrack']}, memray {one['memray']}, jemalloc "
            f"{said['libjemalloc2']}, pprof of {one['go']}, HAKMEM {one['hakmem'].split()[-1]} at {one['commit']},\n"
            f"Python {said['python3']}, Redis {said['redis-server']}, glibc {said['libc6']}, "
            f"Chromium {one['chromium']}.")


def put(text: str, found: dict[str, Any]) -> str:
    """Returns the page with what `found`, the contents of figures.json, says."""
    made = {"versions": versions(found), **{f"figures of {name}": table(found[name])
                                            for name in ("frag", "leak", "redis")}}
    for place, what in made.items():
        parts = re.split(rf"(<!-- {place} -->\n\n).*?(\n\n<!-- end -->)", text, flags=re.S)
        if len(parts) != 4:
            raise ValueError(f"the page has no place for {place}")
        text = "".join([*parts[:2], what, *parts[2:]])
    return text
