"""/metrics: the figures of all processes, or of groups of processes, in Prometheus' text format and in OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from hakmem.live.prometheus import Snapshots

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from hakmem.serve.watch import Subject, Watches

M = TypeVar("M", GaugeMetricFamily, CounterMetricFamily)


class Processes:
    """A collector of the latest looks."""

    def __init__(self, watches: Watches) -> None:
        self.watches = watches
        self.subjects = list(watches.subjects())
        self.running = [subject for subject in self.subjects if subject.up]

    def collect(self) -> Iterator[Metric]:
        """Yields the families of all processes."""
        groups = "pid" not in self.watches.labels
        if groups:
            yield self.family(GaugeMetricFamily, "hakmem_processes", "Processes on HAKMEM",
                              lambda subject: subject.processes)
            yield self.family(GaugeMetricFamily, "hakmem_look_age_seconds", "Time since the oldest of the looks",
                              lambda subject: subject.age)
        else:
            up = GaugeMetricFamily("hakmem_up", "Whether the last look at the process succeeded",
                                   labels=self.watches.labels)
            for subject in self.subjects:
                up.add_metric(subject.name, int(subject.up))
            yield up
        yield from Snapshots(((subject.name, subject.shot) for subject in self.running), self.watches.labels).collect()
        yield self.family(GaugeMetricFamily, "hakmem_process_resident_bytes", "Resident memory, as the kernel counts",
                          lambda subject: subject.rss)
        parts = GaugeMetricFamily("hakmem_resident_bytes", "Resident memory by what it holds",
                                  labels=(*self.watches.labels, "part"))
        faults = CounterMetricFamily("hakmem_page_faults", "Page faults", labels=(*self.watches.labels, "kind"))
        for subject in self.running:
            for part, size in subject.resident.items():
                parts.add_metric([*subject.name, part], size)
            faults.add_metric([*subject.name, "soft"], subject.minor_faults)
            faults.add_metric([*subject.name, "hard"], subject.major_faults)
        yield parts
        yield faults
        yield self.family(GaugeMetricFamily, "hakmem_look_seconds", "How long the last look took",
                          lambda subject: subject.took)
        for name, (meaning, figure) in self.watches.own_figures().items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(f"hakmem_{name}", meaning, value=figure)

    def family(self, kind: type[M], name: str, meaning: str, value: Callable[[Subject], float]) -> M:
        """Returns a family with one figure for each subject."""
        made = kind(name, meaning, labels=self.watches.labels)
        for subject in self.running:
            made.add_metric(subject.name, value(subject))
        return made


class Text:
    """The text of /metrics. It is made once for all requests of one format between two looks."""

    def __init__(self, watches: Watches) -> None:
        self.watches = watches
        self.marks: list[tuple[str, int]] = []
        self.made: dict[str, bytes] = {}

    def latest(self, accept: str) -> tuple[bytes, str]:
        """Returns the text of the latest looks in the format that an Accept header prefers, and its type."""
        encode, kind = choose_encoder(accept)
        marks = self.watches.marks()
        if marks != self.marks:
            self.marks, self.made = marks, {}
        if kind not in self.made:
            registry = CollectorRegistry()
            registry.register(Processes(self.watches))
            self.made[kind] = encode(registry)
        return self.made[kind], kind
