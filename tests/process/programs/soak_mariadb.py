"""Protects MariaDB under many clients, sysbench and various SQL: the answers are the same on either allocator."""

import getpass
import random
import re
from pathlib import Path

import blackbox
import servers

HERE = Path(__file__).resolve().parent
CLIENTS = 6


def transactions(number, round_number):
    """The statements of one client, on its own table."""
    chance = random.Random(100 * round_number + number)
    table = f"work{number}"
    lines = [f"CREATE OR REPLACE TABLE {table} (id INT PRIMARY KEY, value VARCHAR(4000), n INT, KEY (n));"]
    for step in range(500):
        key, size = chance.randrange(200), chance.choice((5, 50, 500, 3500))
        if step % 10 == 0:
            lines.append("START TRANSACTION;")
        what = chance.random()
        if what < 0.5:
            lines.append(f"REPLACE INTO {table} VALUES ({key}, REPEAT('v', {size}), {step});")
        elif what < 0.6:
            lines.append(f"DELETE FROM {table} WHERE id = {key};")
        elif what < 0.8:
            longer = "LEFT(CONCAT(value, REPEAT('u', 40)), 4000)"
            lines.append(f"UPDATE {table} SET value = {longer} WHERE n < {step // 2};")
        else:
            digest = "MD5(GROUP_CONCAT(value ORDER BY n, id))"
            lines.append(f"SELECT COUNT(*), {digest} FROM {table} WHERE n > {step // 3};")
        if step % 10 == 9:
            lines.append("ROLLBACK;" if chance.random() < 0.2 else "COMMIT;")
    return "\n".join([*lines, "COMMIT;", f"SELECT COUNT(*), SUM(LENGTH(value)) FROM {table};"]) + "\n"


def use(place):
    data, path = place.folder / "data", place.folder / "socket"
    common = ["--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}"]
    small = ["--innodb-buffer-pool-size=24M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
    place.run(["mariadb-install-db", *common, *small, "--auth-root-authentication-method=normal", "--skip-test-db"])
    listening = [f"--socket={path}", "--skip-networking", "--thread-cache-size=2"]
    server = place.start([servers.daemon("mariadbd"), *common, *small, *listening])
    server.until(lambda: "ready for connections" in server.output())
    client = ["mariadb", "--no-defaults", f"--socket={path}", "-uroot", "-N", "-B"]
    said = [place.run([*client, "-e", "CREATE DATABASE work"]).stdout]
    for number in place.rounds:
        texts = []
        for i in range(CLIENTS):
            texts.append(place.folder / f"client{i}.sql")
            texts[-1].write_text(transactions(i, number))
        clients = [place.start([*client, "work"], stdin=text) for text in texts]
        for one in clients:
            assert one.wait(blackbox.HANG) == 0, one.report()
            said.append(one.output())
        said.append(place.run([*client, "work"], stdin=(HERE / "mariadb.sql").read_text(), timeout=120).stdout)
        said.append(sysbench(place, path, number))
    server.stop()
    for fault in ("got signal", "[ERROR]", "Assertion"):
        assert fault not in server.output(), server.report()
    return said


def sysbench(place, path, number):
    """Results that do not depend on the order of the threads: the number of transactions, and a sound table."""
    words = ["sysbench", "oltp_read_write", f"--mysql-socket={path}", "--mysql-user=root", "--mysql-db=work"]
    words += ["--tables=2", "--table-size=1000", "--threads=4", "--events=200", "--time=0", f"--rand-seed={number + 1}"]
    place.run([*words, "prepare"])
    output = place.run([*words, "--mysql-ignore-errors=all", "run"], timeout=120).stdout
    place.run([*words, "cleanup"])
    return re.findall(r"transactions: +(\d+)", output)


def test_mariadb():
    said = servers.compare("mariadb", use)
    assert "status\tOK" in said[1 + CLIENTS]
    assert said[2 + CLIENTS] == ["200"]
