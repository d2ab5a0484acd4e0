"""Protects what fleets run beside hakmem serve: Prometheus scrapes it and takes the alert rules, and the OpenTelemetry
collector takes the profiles, while processes come and go.

Needs Debian's package prometheus, Go, and the network for the collector's modules: it is built once, into
~/.cache/hakmem. HAKMEM_TEST_LOAD is how many seconds it lasts; HAKMEM_TEST_PROCESSES how many processes stay."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import blackbox
import busy as programs
from serving import serving, until

HERE = Path(__file__).parent
FLEET = blackbox.REPOSITORY / "packaging/fleet"
SECONDS = float(os.environ.get("HAKMEM_TEST_LOAD", "60"))
PROCESSES = int(os.environ.get("HAKMEM_TEST_PROCESSES", "20"))
# Of one processor, at the default interval.
CPU_MOST = 0.02


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


def collector():
    """The collector's program."""
    folder = Path("~/.cache/hakmem/collector").expanduser()
    shutil.copytree(HERE / "collector", folder, dirs_exist_ok=True)
    if not (folder / "collector").exists():
        for words in (["mod", "tidy"], ["build", "-o", "collector", "."]):
            subprocess.run(["go", *words], cwd=folder, check=True)
    return folder / "collector"


@contextmanager
def running(log, *words):
    with open(log, "wb") as out, subprocess.Popen([str(word) for word in words], stdout=out,
                                                  stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


def asked(port, query):
    """The rows of an answer of Prometheus."""
    address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=blackbox.HANG) as answer:
        return json.load(answer)["data"]["result"]


def test_prometheus_and_the_collector(program, library, tmp_path):
    subprocess.run(["promtool", "check", "rules", FLEET / "alerts.yaml"], check=True)
    otlp, prometheus = free_port(), free_port()
    settings = tmp_path / "collector.yaml"
    settings.write_text(json.dumps({
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{otlp}"}}}},
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {"telemetry": {"metrics": {"level": "none"}},
                    "pipelines": {"profiles": {"receivers": ["otlp"], "exporters": ["debug"]}}}}))
    named = tmp_path / f"soak{os.getpid()}"
    shutil.copy(program, named)
    with ExitStack() as stack:
        for number in range(PROCESSES):
            profile = {"HAKMEM_HEAP_PROFILE": "/dev/null"} if number == 0 else {}
            stack.enter_context(programs.busy(named, library, variables=profile))
        stack.enter_context(running(tmp_path / "collector.log", collector(), "--config", settings,
                                    "--feature-gates=service.profilesSupport"))
        token = tmp_path / "token"
        token.write_text("a-token-for-the-soak")
        token.chmod(0o600)
        server = stack.enter_context(serving("--token-file", token, "--otlp", f"http://127.0.0.1:{otlp}",
                                             "--otlp-interval", "10"))
        server.token = token.read_text()
        scrape = tmp_path / "prometheus.yaml"
        scrape.write_text(json.dumps({
            "global": {"scrape_interval": "5s"}, "rule_files": [str(FLEET / "alerts.yaml")],
            "scrape_configs": [{"job_name": "hakmem", "authorization": {"credentials_file": str(token)},
                                "static_configs": [{"targets": [server.url.split("/")[2]]}]}]}))
        stack.enter_context(running(
            tmp_path / "prometheus.log", "prometheus", f"--config.file={scrape}",
            f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{prometheus}"))
        who = f'{{command="{named.name}"}}'

        def answered(query):
            try:
                return asked(prometheus, query)
            except OSError:
                return []
        until(lambda: answered(f"hakmem_processes{who}"), "the first scrape")
        checked = subprocess.run(["promtool", "check", "metrics"], input=server.get("metrics")[2], check=False,
                                 capture_output=True)
        assert checked.returncode in (0, 3) and b"error" not in checked.stderr, checked.stderr
        print(checked.stderr.decode())
        begun, before = time.monotonic(), float(asked(prometheus, "hakmem_serve_cpu_seconds_total")[0]["value"][1])
        while time.monotonic() < begun + SECONDS:
            with programs.busy(named, library):
                time.sleep(5)
        # Two rounds more, so that the last of them is forgotten.
        until(lambda: float(asked(prometheus, f"hakmem_processes{who}")[0]["value"][1]) == PROCESSES, "the end of all")
        share = (float(asked(prometheus, "hakmem_serve_cpu_seconds_total")[0]["value"][1]) - before) / (
            time.monotonic() - begun)
        print(f"{PROCESSES} processes: {share:.2%} of a processor")
        assert share < CPU_MOST
        assert asked(prometheus, "min_over_time(up[1h])")[0]["value"][1] == "1"
        for series in asked(prometheus, f"resets(hakmem_refills_total{who}[1h])"):
            assert series["value"][1] == "0", "a counter never falls"
        log = (tmp_path / "collector.log").read_text()
        assert "inuse_space" in log and "touched" in log and str(named) in log
