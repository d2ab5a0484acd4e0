"""All processes in Prometheus' text format: what `hakmem stats --prometheus` has, and what only the kernel knows."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from hakmem.live.prometheus import Snapshots

LABELS = ("pid", "command")


class Processes:
    """A collector of the watches' last samples. Of what ended there is but hakmem_up."""

    def __init__(self, watches):
        self.watches = watches
        self.running = [watch for watch in watches if watch.state == "running"]

    def collect(self):
        up = GaugeMetricFamily("hakmem_up", "Whether the last look at the process succeeded", labels=LABELS)
        for watch in self.watches:
            up.add_metric(labels(watch), int(watch.state == "running"))
        yield up
        yield from Snapshots(watch.sample.shot for watch in self.running).collect()
        yield self.family(GaugeMetricFamily, "hakmem_process_resident_bytes", "The process's resident memory",
                          lambda sample: sample.rss)
        parts = GaugeMetricFamily("hakmem_resident_bytes", "Resident memory by what it holds", labels=(*LABELS, "part"))
        for watch in self.running:
            for part, size in watch.sample.resident.parts().items():
                parts.add_metric([*labels(watch), part], size)
        yield parts
        faults = CounterMetricFamily("hakmem_page_faults", "Page faults of the process", labels=(*LABELS, "kind"))
        for watch in self.running:
            faults.add_metric([*labels(watch), "soft"], watch.sample.minor_faults)
            faults.add_metric([*labels(watch), "hard"], watch.sample.major_faults)
        yield faults
        yield self.family(GaugeMetricFamily, "hakmem_look_seconds", "How long the last look took",
                          lambda sample: sample.took)

    def family(self, kind, name, meaning, value):
        made = kind(name, meaning, labels=LABELS)
        for watch in self.running:
            made.add_metric(labels(watch), value(watch.sample))
        return made


def labels(watch):
    return [str(watch.pid), watch.sample.shot.command]


def metrics_text(watches):
    registry = CollectorRegistry()
    registry.register(Processes(list(watches)))
    return generate_latest(registry).decode()
