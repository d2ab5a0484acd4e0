"""Protects nginx under load and reloads: the same bodies on either allocator, and no lost request."""

import hashlib
import http.client
import random
import re
import signal
import ssl
import time
from pathlib import Path

import blackbox
import servers

RELOADS = 4

CONFIGURATION = (
    """
daemon off;
pid {folder}/pid;
error_log stderr error;
worker_processes 2;
worker_rlimit_nofile 4096;
{user}
events {{ worker_connections 2048; }}
http {{"""
    + servers.NGINX_FOLDERS
    + """
    proxy_cache_path {folder}/cache keys_zone=cached:1m;
    access_log {folder}/access.log;
    map $uri $kind {{ ~*page0 even; ~*page1 odd; default other; }}
    server {{
        listen 127.0.0.1:{port} backlog=2000;
        listen 127.0.0.1:{tls_port} ssl backlog=2000;
        ssl_certificate {folder}/certificate.pem;
        ssl_certificate_key {folder}/key.pem;
        root {folder}/pages;
        location / {{ gzip on; gzip_types text/plain; gzip_min_length 100; }}
        location /changed/ {{
            alias {folder}/pages/;
            sub_filter_types text/plain;
            sub_filter 'page' '<$kind $uri>';
            sub_filter_once off;
        }}
        location /included/ {{ ssi on; ssi_types text/plain; }}
        location /through/ {{ proxy_pass http://unix:{folder}/inner:/; proxy_buffers 4 4k; }}
        location /cached/ {{ proxy_pass http://unix:{folder}/inner:/; proxy_cache cached; proxy_cache_valid 200 1m; }}
        location /kept/ {{ dav_methods PUT DELETE; create_full_put_path on; client_max_body_size 4m; }}
    }}
    server {{
        listen unix:{folder}/inner;
        root {folder}/pages;
        add_header X-Inner $kind;
    }}
}}
"""
)


def write_pages(folder):
    pages = folder / "pages"
    (pages / "included").mkdir(parents=True)
    (pages / "kept").mkdir()
    chance = random.Random(3)
    for i, size in enumerate((10, 900, 5000, 40000, 300000, 2000000)):
        text = f"page {i} " + "".join(chance.choice("abcde page\n") for _ in range(1000)) * (size // 1000 + 1)
        (pages / f"page{i}").write_text(text[:size])
    parts = "".join(f'<!--#include virtual="/through/page{i % 4}" --><!--#echo var="uri" -->' for i in range(20))
    (pages / "included" / "all").write_text(parts)


def bodies(connection):
    """The status and digest of each kind of answer, over one persistent connection."""
    said = []
    for path in ["", "/changed", "/through", "/cached", "/cached"]:
        for i in range(6):
            headers = {"Accept-Encoding": "gzip" if i % 2 else "none"}
            said.append(ask(connection, "GET", f"{path}/page{i}", headers=headers))
    said.append(ask(connection, "GET", "/included/all"))
    said.append(ask(connection, "GET", "/page4", headers={"Range": "bytes=5-10,100-2000,-300"}, parts=True))
    said.append(ask(connection, "GET", "/missing/" + "x" * 3000))
    for i in range(4):
        said.append(ask(connection, "PUT", f"/kept/file{i}", body=bytes([65 + i]) * (1 << (5 * i))))
        said.append(ask(connection, "GET", f"/kept/file{i}"))
        said.append(ask(connection, "DELETE", f"/kept/file{i}"))
    connection.close()
    return said


def ask(connection, method, path, parts=False, **arguments):
    connection.request(method, path, **arguments)
    answer = connection.getresponse()
    body = answer.read()
    if parts:
        # nginx chooses the number in the line between the parts at random.
        body = re.sub(rb"--\d{20}", b"--", body)
    return method, path[:20], answer.status, hashlib.sha256(body).hexdigest()


def counts(result):
    """ab's counts of answers."""
    return re.findall(r"(Complete requests|Failed requests|Non-2xx responses|HTML transferred): +(\d+)", result.stdout)


def workers(server):
    """The worker processes, without the master and the processes of the cache."""
    family = servers.family_of(server.process.pid)
    return {pid for pid in family if "worker process" in servers.read(f"/proc/{pid}/cmdline")}


def use(place):
    folder, port = place.folder, servers.free_port()
    tls_port = servers.free_port(port + 1)
    # The workers run as another user.
    folder.chmod(0o755)
    write_pages(folder)
    place.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "9"]
        + ["-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"]
    )
    user = "user nobody nogroup;" if servers.is_root() else ""
    if user:
        servers.give(folder / "pages", "nobody", "nogroup")
    Path(folder, "nginx.conf").write_text(CONFIGURATION.format(folder=folder, port=port, tls_port=tls_port, user=user))
    server = place.start([servers.daemon("nginx"), "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"])
    server.until(lambda: len(workers(server)) >= 2 and Path(folder, "inner").exists())
    trust = ssl.create_default_context(cafile=folder / "certificate.pem")
    trust.check_hostname = False
    said = []
    for _ in place.rounds:
        said.append(bodies(http.client.HTTPConnection("127.0.0.1", port)))
        said.append(bodies(http.client.HTTPSConnection("127.0.0.1", tls_port, context=trust)))
        for scheme, where, path, number in (
            ("http", port, "page2", 3000),
            ("http", port, "included/all", 300),
            ("https", tls_port, "changed/page3", 300),
        ):
            said.append(load_with_reloads(place, server, f"{scheme}://127.0.0.1:{where}/{path}", number))
        url = f"http://127.0.0.1:{port}/through/page1"
        said.append(counts(place.run(["ab", "-q", "-k", "-c", "20", "-n", "2000", url])))
    server.stop(signal.SIGQUIT)
    assert "exited on signal" not in server.output(), server.report()
    return said


def load_with_reloads(place, server, url, number):
    """ab sends requests while nginx starts new workers again and again."""
    ab = place.start(["ab", "-q", "-c", "20", "-n", str(number), "-H", "Accept-Encoding: gzip", url])
    for _ in range(RELOADS):
        before = workers(server)
        server.process.send_signal(signal.SIGHUP)
        server.until(lambda before=before: len(workers(server) - before) >= 2)
        time.sleep(0.05)
    assert ab.wait(blackbox.HANG) == 0, ab.report()
    # A worker that is about to exit may close a connection that a later load keeps open.
    server.until(lambda: len(workers(server)) == 2)
    return counts(ab)


def test_nginx():
    said = servers.compare("nginx", use)
    assert all(status in (200, 201, 204, 206, 404) for _, _, status, _ in said[0])
    for answer in said[2:6]:
        assert ("Failed requests", "0") in answer
        assert not any(name == "Non-2xx responses" for name, _ in answer)
