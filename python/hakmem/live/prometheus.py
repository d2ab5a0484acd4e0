"""Writes a snapshot in Prometheus' text exposition format, with Prometheus' own client library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from hakmem.live import words
from hakmem.phrases import capital

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from hakmem.live.model import Figures, Scope, Snapshot

NUMBERS = {
    "huge_blocks": "Live blocks above 1 MiB",
    "superslabs": "SuperSlabs made",
    "heaps": "Heaps of threads and of programs in use",
    "live_threads": "Threads that have a heap",
}

POOLS = {
    "slabs": "Slabs, spans or mappings", "slab_bytes": "Their bytes",
    "live_blocks": "Live blocks", "live_bytes": "Their bytes",
    "cached_blocks": "Blocks in thread caches", "cached_bytes": "Their bytes", "free_blocks": "Free blocks in slabs",
    "free_bytes": "Free bytes in slabs, or of freed huge ranges",
}
# {label `state`: the fields of Pool that it sums}, as in src/observe/export_prometheus.c. A series for each SuperSlab
# would be thousands.
UNITS = {"used": ("active_units", "warm_units"), "dirty": ("dirty_units",), "clean": ("untouched_units", "guard_units")}


class Snapshots:
    """A collector of figures, each with the values of its labels."""

    def __init__(self, shots: Iterable[tuple[tuple[str, ...], Figures]], labels: tuple[str, ...]) -> None:
        self.shots = list(shots)
        self.labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yields the families of all snapshots."""
        for name, meaning in {**words.PARTS, **words.OTHER_TOTALS}.items():
            yield self.gauge(f"hakmem_{name}_bytes", capital(meaning), attrgetter(f"totals.{name}"))
        for name, meaning in NUMBERS.items():
            yield self.gauge(f"hakmem_{name}", meaning, attrgetter(f"totals.{name}"))
        for name in sorted({name for _, shot in self.shots for name in shot.counters}):
            family = CounterMetricFamily(f"hakmem_{name}", f"{capital(name.replace('_', ' '))} since the start",
                                         labels=self.labels)
            for key, shot in self.shots:
                family.add_metric(key, shot.counters.get(name, 0))
            yield family
        yield from self.rows("class", "block_size", lambda shot: [
            (str(row.block_size), row) for row in shot.classes], {
                "slabs": "Slabs in use", "live_blocks": "Live blocks", "cached_blocks": "Blocks in thread caches",
                "free_blocks": "Free blocks in slabs"})
        yield from self.rows("heap", "heap", lambda shot: [(str(row.heap), row) for row in shot.threads], {
            "slabs": "Slabs owned", "live_bytes": "Live bytes in its slabs",
            "cached_bytes": "Bytes in its thread's cache"})
        yield from self.rows("scope", "scope", scopes, {
            "live_bytes": "Bytes of live blocks, with the scopes below it", "cap_bytes": "Its cap in bytes; 0: none",
            "peak_bytes": "The most bytes that were live", "refused": "Allocations that its cap refused"})
        yield from self.rows("pool", "pool", lambda shot: [(row.name, row) for row in shot.block_pools], POOLS)
        yield self.superslab_units()
        for name in sorted({name for _, shot in self.shots for row in shot.classes for name in row.counters}):
            family = CounterMetricFamily(f"hakmem_class_{name}", f"{capital(name.replace('_', ' '))} since the start",
                                         labels=(*self.labels, "block_size"))
            for key, shot in self.shots:
                for row in shot.classes:
                    family.add_metric([*key, str(row.block_size)], row.counters.get(name, 0))
            yield family

    def superslab_units(self) -> GaugeMetricFamily:
        """Returns the family of units by tier and state."""
        family = GaugeMetricFamily(
            "hakmem_superslab_units", "Units of 64 KiB of the SuperSlabs of a tier: in use, free "
            "with memory behind them (dirty), free without (clean)", labels=(*self.labels, "tier", "state"))
        for key, shot in self.shots:
            for row in shot.pools:
                for state, names in UNITS.items():
                    family.add_metric([*key, row.tier.lower(), state],
                                      sum(getattr(row, name) for name in names))
        return family

    def gauge(self, name: str, meaning: str, value: Callable[[Figures], float]) -> GaugeMetricFamily:
        """Returns a family with one figure for each snapshot."""
        family = GaugeMetricFamily(name, meaning, labels=self.labels)
        for key, shot in self.shots:
            family.add_metric(key, value(shot))
        return family

    def rows(self, what: str, label: str, rows_of: Callable[[Figures], Iterable[tuple[str, object]]],
             columns: dict[str, str]) -> Iterator[GaugeMetricFamily]:
        """Yields a family for each column of a table, with one label more."""
        for column, meaning in columns.items():
            family = GaugeMetricFamily(f"hakmem_{what}_{column}", meaning, labels=(*self.labels, label))
            for key, shot in self.shots:
                for label_value, row in rows_of(shot):
                    family.add_metric([*key, label_value], getattr(row, column))
            yield family


def scopes(shot: Figures) -> Iterator[tuple[str, Scope]]:
    """Yields each scope with a label of its own: the name, with the number behind one that came before."""
    seen = set()
    for row in shot.scopes:
        yield f"{row.name} {row.number}" if row.name in seen else row.name, row
        seen.add(row.name)


def prometheus_text(shot: Snapshot) -> str:
    """Returns the text of a snapshot."""
    registry = CollectorRegistry()
    registry.register(Snapshots([((str(shot.pid or ""), shot.command), shot)], ("pid", "command")))
    return generate_latest(registry).decode()
