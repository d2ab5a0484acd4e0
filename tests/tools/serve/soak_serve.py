"""Protects hakmem serve from hostile clients: beside them a scraper gets every answer, the log stays short, memory and
descriptors stay bounded, and when they leave nothing of them is left.

HAKMEM_TEST_LOAD is how many seconds they stay."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time

import blackbox
import pytest
from serving import serving, until

SECONDS = float(os.environ.get("HAKMEM_TEST_LOAD", "30"))
# More descriptors than a server of one process uses, and memory that the connections and the bodies may take.
DESCRIPTORS_MOST, RSS_MOST = 700, 400 << 20


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def resident(server):
    with open(f"/proc/{server.process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Scraper:
    """Asks for the metrics, on a new connection each time or on the same one."""

    def __init__(self, server, kept):
        self.server, self.kept, self.connection, self.seconds = server, kept, None, []

    def scrape(self):
        begun = time.monotonic()
        for _ in range(2):  # as scrapers do, again on a new connection if the server closed the one that was kept
            fresh = self.connection is None
            if fresh:
                self.connection = http.client.HTTPConnection(self.server.url.split("/")[2], timeout=blackbox.HANG)
            try:
                self.connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.server.token}"})
                answer = self.connection.getresponse()
                body = answer.read()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if fresh:
                    raise
                self.connection = None
        assert answer.status == 200 and b"hakmem_up{" in body, (answer.status, body[:200])
        self.seconds.append(time.monotonic() - begun)
        if not self.kept:
            self.connection.close()
            self.connection = None

    def told(self):
        ordered = sorted(self.seconds)
        most = ordered[len(ordered) * 99 // 100]
        return (f"{len(ordered)} answers, worst {ordered[-1]:.3f} s, 99 % in {most:.3f} s, "
                f"half in {ordered[len(ordered) // 2]:.4f} s")


@pytest.mark.parametrize("options", [[], ["--no-token"]])
def test_hostile_clients_beside_a_scraper(busy, options):
    with serving(busy.pid, *options) as server:
        before, most_open, most_resident = descriptors(server), 0, 0
        scrapers = Scraper(server, False), Scraper(server, True)
        with subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "hostile_clients.py"),
                               server.url.rsplit(":", 1)[1].strip("/"), str(SECONDS), str(os.getpid())],
                              stdout=subprocess.PIPE, text=True) as clients:
            while clients.poll() is None:
                for scraper in scrapers:
                    scraper.scrape()
                most_open, most_resident = max(most_open, descriptors(server)), max(most_resident, resident(server))
                time.sleep(0.1)
            counts = json.loads(clients.stdout.read())
        print(f"\nclients: {counts}\nnew connections: {scrapers[0].told()}\na kept one: {scrapers[1].told()}\n"
              f"at most {most_open} descriptors, {most_resident >> 20} MiB")
        assert clients.returncode == 0 and all(counts.values()), counts
        assert most_open < DESCRIPTORS_MOST and most_resident < RSS_MOST
        scrapers[1].connection.close()
        until(lambda: descriptors(server) == before, "the connections end")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(blackbox.HANG) == 0
        assert len(server.process.stderr.read().splitlines()) == len(options), "the warning of --no-token"
