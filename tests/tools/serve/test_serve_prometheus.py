"""Protects the metrics: Debian's Prometheus scrapes the server and answers queries about them."""

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request

import blackbox
import busy as programs
from serving import until

CONFIGURATION = """\
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: hakmem
    authorization: {{ credentials: "{token}" }}
    static_configs:
      - targets: ["{target}"]
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def test_prometheus_scrapes_it(server, busy, tmp_path):
    assert shutil.which("prometheus"), "Debian's package prometheus is missing"
    target = server.url.removeprefix("http://").rstrip("/")
    (tmp_path / "prometheus.yml").write_text(CONFIGURATION.format(target=target, token=server.token))
    address = f"127.0.0.1:{free_port()}"
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
             f"--web.listen-address={address}"], stdout=log, stderr=log, start_new_session=True)
    try:
        def query(question):
            """[(labels, value)] of an instant query. Empty while Prometheus does not answer yet."""
            try:
                query = f"http://{address}/api/v1/query?query={urllib.parse.quote(question)}"
                with urllib.request.urlopen(query, timeout=blackbox.HANG) as answer:
                    made = json.load(answer)
            except OSError:
                assert process.poll() is None, (tmp_path / "log").read_text()
                return []
            assert made["status"] == "success"
            return [(each["metric"], float(each["value"][1])) for each in made["data"]["result"]]

        up = until(lambda: query("hakmem_up"), "the first scrape")
        assert [(labels["pid"], labels["job"], value) for labels, value in up] == [(str(busy.pid), "hakmem", 1)]
        assert query("up") == [({"__name__": "up", "instance": target, "job": "hakmem"}, 1)]
        held = query(f'hakmem_class_live_blocks{{block_size="{programs.HELD_CLASS}"}}')
        assert len(held) == 1 and programs.HELD <= held[0][1] <= programs.HELD + 200
        (_, difference), = query("sum(hakmem_resident_bytes) - sum(hakmem_process_resident_bytes)")
        assert difference == 0
        rate = until(lambda: query("rate(hakmem_refills_total[10s])"), "two scrapes")
        assert rate[0][1] > 0
        busy.end()
        until(lambda: [value for _, value in query("hakmem_up")] == [0], "the end of the process")
    finally:
        process.kill()
        process.wait()
