"""Protects PostgreSQL under pgbench, various SQL and a dump: the answers are the same on either allocator."""

import hashlib
import signal
from pathlib import Path

import servers

HERE = Path(__file__).resolve().parent
CLIENTS = 8

# pgbench draws its rows from a seed. Sums do not depend on the order of its clients.
BALANCES = """
SELECT count(*), sum(abalance), md5(string_agg(aid || ':' || abalance, ',' ORDER BY aid)) FROM pgbench_accounts;
SELECT md5(string_agg(tid || ':' || tbalance, ',' ORDER BY tid)) FROM pgbench_tellers;
SELECT count(*), md5(string_agg(tid || ',' || bid || ',' || aid || ',' || delta, ';' ORDER BY aid, tid, delta))
    FROM pgbench_history;
"""


def binaries():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    assert found, "PostgreSQL is not installed"
    return found[-1]


def use(place):
    programs, data = binaries(), place.folder / "data"
    words = ["-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8"]
    place.run([programs / "initdb", "-D", data, *words], timeout=120)
    options = {
        "listen_addresses": "",
        "unix_socket_directories": place.folder,
        "fsync": "off",
        "shared_buffers": "16MB",
        "autovacuum_naptime": "1s",
        "max_connections": "40",
    }
    settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    server = place.start([programs / "postgres", "-D", data, *settings])
    server.until(lambda: "ready to accept connections" in server.output())
    host = ["-h", place.folder, "-U", "postgres"]

    def psql(*words, stdin=None):
        return place.run([programs / "psql", "-X", "-q", "-A", "-t", *host, *words, "postgres"], stdin=stdin).stdout

    def pgbench(*words):
        place.run([programs / "pgbench", *host, *words, "postgres"], timeout=120)

    said = []
    pgbench("-i", "-q", "-s", "1")
    for number in place.rounds:
        seed = f"--random-seed={7 + number}"
        pgbench("-n", "-c", str(CLIENTS), "-j", "2", "-t", "60", "-M", "prepared", seed)
        # Each transaction has its own connection, and so its own process.
        pgbench("-n", "-c", "4", "-C", "-t", "12", seed)
        said.append(psql(stdin=BALANCES))
        said.append(psql("-f", HERE / "postgres.sql"))
    dump = place.run([programs / "pg_dump", *host, "--table=item", "postgres"]).stdout
    # autovacuum's timing decides where updated rows lie, and so their order in the dump.
    lines = [line for line in dump.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]
    said.append(hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest())
    # When a backend crashes, the postmaster restarts all others.
    server.stop(signal.SIGINT)
    assert "was terminated by signal" not in server.output(), server.report()
    return said


def test_postgres():
    said = servers.compare("postgres", use, user="nobody")
    assert said[0].startswith("100000|")
    assert "12000|" in said[1]
