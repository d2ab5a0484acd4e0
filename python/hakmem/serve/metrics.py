"""All processes in Prometheus' text format: `hakmem stats --prometheus`, and figures that only the kernel knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from hakmem.live.prometheus import Snapshots

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from hakmem.serve.watch import Seen, Watch

LABELS = ("pid", "command")
M = TypeVar("M", GaugeMetricFamily, CounterMetricFamily)


class Processes:
    """A collector of the watches' latest samples. A process that has ended has only hakmem_up."""

    def __init__(self, watches: Iterable[Watch]) -> None:
        self.watches = watches
        self.running = [watch for watch in watches if watch.state == "running"]

    def collect(self) -> Iterator[Metric]:
        """Yields the families of all processes."""
        up = GaugeMetricFamily("hakmem_up", "Whether the last look at the process succeeded", labels=LABELS)
        for watch in self.watches:
            up.add_metric(labels(watch), int(watch.state == "running"))
        yield up
        yield from Snapshots(watch.sample.shot for watch in self.running).collect()
        yield self.family(GaugeMetricFamily, "hakmem_process_resident_bytes", "The process's resident memory",
                          lambda sample: sample.rss)
        parts = GaugeMetricFamily("hakmem_resident_bytes", "Resident memory by what it holds", labels=(*LABELS, "part"))
        for watch in self.running:
            for part, size in watch.sample.resident.items():
                parts.add_metric([*labels(watch), part], size)
        yield parts
        faults = CounterMetricFamily("hakmem_page_faults", "Page faults of the process", labels=(*LABELS, "kind"))
        for watch in self.running:
            faults.add_metric([*labels(watch), "soft"], watch.sample.minor_faults)
            faults.add_metric([*labels(watch), "hard"], watch.sample.major_faults)
        yield faults
        yield self.family(GaugeMetricFamily, "hakmem_look_seconds", "How long the last look took",
                          lambda sample: sample.took)

    def family(self, kind: type[M], name: str, meaning: str, value: Callable[[Seen], float]) -> M:
        """Returns a family with one figure for each running process."""
        made = kind(name, meaning, labels=LABELS)
        for watch in self.running:
            made.add_metric(labels(watch), value(watch.sample))
        return made


def labels(watch: Watch) -> list[str]:
    """Returns the values of the labels that every series has."""
    return [str(watch.pid), watch.sample.shot.command]


class Text:
    """The text of /metrics. It is made once for all requests between two looks."""

    def __init__(self, watches: Iterable[Watch]) -> None:
        self.watches = list(watches)
        self.looks: list[tuple[str, int]] = []
        self.made = b""

    def latest(self) -> bytes:
        """Returns the text of the latest looks."""
        looks = [(watch.state, watch.points[-1].number) for watch in self.watches]
        if looks != self.looks:
            registry = CollectorRegistry()
            registry.register(Processes(self.watches))
            self.looks, self.made = looks, generate_latest(registry)
        return self.made
