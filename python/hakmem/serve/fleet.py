"""All processes on HAKMEM that this user may read: finds them, follows them, and sums their figures by where they run.

One worker looks at one process after the other (survey.py). A process that keeps it waiting loses the worker; what
belongs to that process's user or cgroup is then left alone for a while."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hakmem.live.memory import UNSOUND, LiveError, problem_text
from hakmem.live.model import Totals
from hakmem.serve.places import place_of
from hakmem.serve.target import Late, Target
from hakmem.serve.watch import Seen, Subject, Watch, Watches

LABELS = ("unit", "container", "pod", "command")
OTHERS = ("", "", "", "(others)")
# The most groups of processes that have labels of their own, and the most processes that are followed.
GROUPS_MOST, ROWS_MOST = 400, 10_000
# The looks of a round take at most this share of one processor, less what the server itself takes.
SHARE = 0.015
# Seconds for which nothing of an owner is looked at whose process kept the worker waiting.
PENALTY = 600
# Watches that requests opened: their number, and seconds without a request after which one ends.
OPEN_MOST, OPEN_SECONDS = 8, 60


class Row(Seen):
    """The latest look at a process that succeeded, and whose it is."""

    def __init__(self, pid: int, told: dict[str, Any]) -> None:
        place, self.begun = told.pop("place"), told.pop("begun")
        super().__init__({**told, "pid": pid, "classes": [], "threads": [], "scopes": [], "pools": [],
                          "block_pools": []})
        self.pid, self.problem = pid, ""
        self.key = (place["unit"], place["container"], place["pod"], self.shot.command)
        self.group: tuple[str, ...] = self.key

    def about(self) -> dict[str, object]:
        """Returns the entry of this process in a list of processes."""
        return {"pid": self.pid, "command": self.shot.command, "version": self.shot.version,
                "state": "unread" if self.problem else "running", "problem": self.problem, "ended_at": None,
                "rss": self.rss, "live": self.shot.totals.live, **dict(zip(LABELS, self.key))}


@dataclass
class Grown:
    """What the counters of a group's processes grew by. It never falls while the group has a process."""

    counters: Counter[str] = field(default_factory=Counter)
    minor_faults: int = 0
    major_faults: int = 0

    def add(self, before: Row | None, after: Row) -> None:
        """Adds what a process did since its look before; all that it did if there was none."""
        old = before.shot.counters if before else {}
        for name, value in after.shot.counters.items():
            self.counters[name] += max(value - old.get(name, 0), 0)
        self.minor_faults += max(after.minor_faults - (before.minor_faults if before else 0), 0)
        self.major_faults += max(after.major_faults - (before.major_faults if before else 0), 0)


class Fleet(Watches):
    """The processes of a cgroup tree."""

    labels = LABELS

    def __init__(self, tree: str, deadline: float, interval: float) -> None:
        super().__init__([], deadline, interval)
        self.tree = tree
        self.target = Target(0, deadline)
        self.rows: dict[int, Row] = {}
        self.grown: dict[tuple[str, ...], Grown] = {}
        self.unseen = self.unread = self.left_alone = self.rounds = 0
        self.took, self.worker_cpu, self.worker_before = 0.0, 0.0, 0.0
        self.penalties: dict[tuple[int, str], float] = {}
        self.opened: dict[str, tuple[float, asyncio.Task[None]]] = {}

    # ---- Rounds ----

    async def start(self) -> None:
        """Makes the first round, which has no limit."""
        await self.round(float("inf"))

    async def run(self) -> None:
        """Makes a round each interval."""
        while True:
            begun = time.monotonic()
            await asyncio.sleep(max(self.interval - self.took, 0))
            try:
                await self.round(SHARE * (time.monotonic() - begun))
            except LiveError as error:
                logging.error("%s", error)

    async def round(self, budget: float) -> None:
        """Looks at all processes, those that have waited longest first. budget: the worker's CPU seconds."""
        begun = time.monotonic()
        found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        pids = sorted((pid for pid in found if not self.left(pid)),
                      key=lambda pid: self.rows[pid].at if pid in self.rows else 0)
        kinds: Counter[str] = Counter()
        left_alone = len(found) - len(pids)
        seen: set[int] = set()
        while pids:
            answered = 0
            await self.target.ask("begin", budget=min(budget, 1e9), tree=self.tree, pids=pids)
            try:
                async for answer in self.target.each("look", [{"pid": pid} for pid in pids]):
                    kinds.update(answer.keys() & {"unseen", "problem"})
                    if self.note(pids[answered], answer):
                        seen.add(pids[answered])
                    answered += 1
            except Late:
                self.punish(pids[answered])
                self.worker_lost()
                answered += 1
            except LiveError as error:
                logging.error("process %s: %s", pids[answered], error)
                self.worker_lost()
                answered += 1
            pids = pids[answered:]
        self.worker_cpu = self.worker_before + (await self.target.ask("end"))["cpu"]
        for pid in self.rows.keys() - seen:
            del self.rows[pid]
        for group in self.grown.keys() - {row.group for row in self.rows.values()}:
            del self.grown[group]
        self.unseen, self.unread, self.left_alone = kinds["unseen"], kinds["problem"], left_alone
        self.took = time.monotonic() - begun
        self.rounds += 1
        self.close_idle()

    def worker_lost(self) -> None:
        """Keeps the CPU time of a worker that was ended."""
        self.worker_before = self.worker_cpu

    def note(self, pid: int, told: dict[str, Any]) -> bool:
        """Keeps a look. Returns whether the process counts."""
        before = self.rows.get(pid)
        if told.get("later"):
            return before is not None
        if "problem" in told:
            if before:
                before.problem = told["problem"]
            return before is not None
        if "totals" not in told or not before and len(self.rows) >= ROWS_MOST:
            return False
        try:
            row = Row(pid, told)
        except UNSOUND as error:
            logging.error("process %s: its figures make no sense (%s)", pid, problem_text(error))
            return False
        if before and (before.begun, before.program) != (row.begun, row.program):
            before = None
        row.group = before.group if before and before.key == row.key else self.group_of(row.key)
        # What a process did before it came into the group is not the group's.
        self.grown[row.group].add(row if before and before.key != row.key else before, row)
        self.rows[pid] = row
        return True

    def group_of(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the group for labels: their own, or that of all others if there are too many."""
        group = key if key in self.grown or len(self.grown) < GROUPS_MOST else OTHERS
        self.grown.setdefault(group, Grown())
        return group

    # ---- Who is left alone ----

    def left(self, pid: int) -> bool:
        """Returns whether the process's owner is left alone for now."""
        now = time.monotonic()
        self.penalties = {owner: end for owner, end in self.penalties.items() if end > now}
        return bool(self.penalties) and owner_of(pid) in self.penalties

    def punish(self, pid: int) -> None:
        """Leaves alone what belongs to a process's owner."""
        logging.error("process %s kept its reader waiting for more than %g seconds; what belongs to its user or cgroup "
                      "is left alone for %d seconds", pid, self.target.seconds, PENALTY)
        self.penalties[owner_of(pid)] = time.monotonic() + PENALTY

    # ---- What requests get ----

    def listed(self) -> list[dict[str, object]]:
        """Returns the entries of all processes, the largest first."""
        return [row.about() for row in sorted(self.rows.values(), key=lambda row: -row.rss)]

    def pid_named(self, name: str) -> str | None:
        """Returns the PID of the largest process whose unit, container, pod or command this is."""
        found = [row for row in self.rows.values() if name and name in row.key]
        return str(max(found, key=lambda row: row.rss).pid) if found else None

    def only(self) -> Watch | None:
        """Returns the only process, if there is one."""
        return self.watch_of(next(iter(self.rows))) if len(self.rows) == 1 else None

    def watch_of(self, pid: int) -> Watch:
        """Returns a Watch of a process that nobody runs."""
        watch = Watch(pid, self.deadline)
        watch.target.begun = self.rows[pid].begun
        watch.latest = self.rows[pid]
        return watch

    def known(self, text: str) -> Watch | None:
        """Returns a Watch of a process in the list, without looking at it."""
        if text in self.watches:
            return self.watches[text]
        return self.watch_of(int(text)) if text.isdigit() and int(text) in self.rows else None

    async def wanted(self, watch: Watch) -> Watch:
        """Returns the Watch of a known process, which looks at it each second as long as requests come."""
        text = str(watch.pid)
        if text not in self.watches:
            if len(self.watches) >= OPEN_MOST:
                await self.close(min(self.opened, key=lambda one: self.opened[one][0]))
            await watch.look()
            if text in self.watches:  # another request was faster
                await watch.target.end()
            else:
                self.watches[text] = watch
                self.opened[text] = time.monotonic(), asyncio.create_task(watch.run(1.0))
        self.opened[text] = time.monotonic(), self.opened[text][1]
        return self.watches[text]

    def served(self) -> str:
        """Returns how many processes there are, for a message."""
        return f"{len(self.rows)} processes, which /api/processes lists"

    def close_idle(self) -> None:
        """Ends the Watches for which no requests come."""
        for text, (asked, _) in list(self.opened.items()):
            if time.monotonic() > asked + OPEN_SECONDS:
                task = asyncio.create_task(self.close(text))
                task.add_done_callback(lambda _: None)

    async def close(self, text: str) -> None:
        """Ends a Watch that a request opened."""
        watch, (_, task) = self.watches.pop(text), self.opened.pop(text)
        watch.stopping = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await watch.target.end()

    async def end(self) -> None:
        """Ends all workers."""
        for text in list(self.opened):
            await self.close(text)
        await self.target.end()

    # ---- Metrics ----

    def marks(self) -> list[tuple[str, int]]:
        """Returns what changes when the metrics do."""
        return [("", self.rounds)]

    def subjects(self) -> Iterator[Subject]:
        """Yields the sums of each group."""
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows.values():
            groups.setdefault(row.group, []).append(row)
        for group, rows in sorted(groups.items()):
            grown, totals, resident = self.grown[group], Counter[str](), Counter[str]()
            for row in rows:
                totals.update(vars(row.shot.totals))
                resident.update(row.resident)
            oldest = min(rows, key=lambda row: row.at)
            shot = replace(oldest.shot, totals=Totals(**totals), counters=dict(grown.counters))
            yield Subject(group, len(rows), shot, sum(row.rss for row in rows), dict(resident), grown.minor_faults,
                          grown.major_faults, max(row.took for row in rows), time.monotonic() - oldest.at)

    def resources(self) -> list[dict[str, str | int]]:
        """Returns the attributes of each process in OpenTelemetry's words, and when it began."""
        return [{"service.name": row.key[0] or row.shot.command, "process.executable.name": row.shot.command,
                 "container.id": row.key[1], "k8s.pod.uid": row.key[2], "process.pid": row.pid, "begun": row.begun}
                for row in self.rows.values()]

    def own_figures(self) -> dict[str, tuple[str, float]]:
        """Returns {name: (meaning, figure)} of the server itself."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"serve_unseen_processes": ("Processes that this user may not read", self.unseen),
                "serve_unread_processes": ("Processes on HAKMEM at which the last look failed", self.unread),
                "serve_left_processes": ("Processes left alone, because one of their owner kept its reader waiting",
                                         self.left_alone),
                "serve_round_seconds": ("How long the last look at all processes took", self.took),
                "serve_cpu_seconds_total": ("Processor time of the server and of its looks",
                                            used.ru_utime + used.ru_stime + self.worker_cpu)}


def owner_of(pid: int) -> tuple[int, str]:
    """Returns (user, cgroup) of a process. Of a user other than root, all cgroups count as one."""
    try:
        user = os.stat(f"/proc/{pid}").st_uid
        return user, "" if user else place_of(Path(f"/proc/{pid}/cgroup").read_text(errors="replace")).path
    except OSError:
        return -1, ""


