"""Protects memcached under clients that set, grow, read and delete: the values are the same on either allocator."""

import getpass
import hashlib
import random
import socket
import threading

import servers

CLIENTS = 4
KEYS = 1200


class Client:
    """A connection of the text protocol."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.stream = self.socket.makefile("rwb")

    def ask(self, line, data=None):
        self.stream.write(line.encode() + b"\r\n" + (data + b"\r\n" if data is not None else b""))
        self.stream.flush()
        return self.stream.readline().decode().strip()

    def get(self, keys):
        """The values of those keys that exist."""
        values = {}
        answer = self.ask("get " + " ".join(keys))
        while answer != "END":
            _, key, flags, size = answer.split()
            values[key] = (flags, self.stream.read(int(size) + 2)[:-2])
            answer = self.stream.readline().decode().strip()
        return values

    def stats(self):
        found = {}
        answer = self.ask("stats")
        while answer != "END":
            _, name, value = answer.split(" ", 2)
            found[name] = value
            answer = self.stream.readline().decode().strip()
        return found

    def close(self):
        self.stream.close()
        self.socket.close()


def work(path, number, round_number, answers):
    """One client's commands on its own keys, and the digest of all answers of the server."""
    chance = random.Random(1000 * round_number + number)
    heard = hashlib.sha256()
    client = Client(path)
    names = [f"k{number}-{i}" for i in range(KEYS)]
    for step in range(6 * KEYS):
        name = chance.choice(names)
        what = chance.random()
        if what < 0.5:
            size = chance.choice((10, 60, 300, 2000, 9000, 60000 if step % 10 == 0 else 700))
            said = client.ask(f"set {name} {step} 0 {size}", bytes([33 + step % 90]) * size)
        elif what < 0.6:
            said = client.ask(f"append {name} 0 0 100", b"+" * 100)
        elif what < 0.7:
            said = client.ask(f"delete {name}")
        elif what < 0.72:
            client.ask(f"set n{number} 0 0 1", b"1")
            said = client.ask(f"incr n{number} {step}")
        elif what < 0.73:
            client.close()
            client = Client(path)
            said = client.ask(f"touch {name} 0")
        else:
            said = repr(sorted(client.get(chance.sample(names, 20)).items()))
        heard.update(said.encode())
    client.close()
    answers[number] = heard.hexdigest()


def use(place):
    path = place.folder / "socket"
    user = getpass.getuser()
    server = place.start([servers.daemon("memcached"), "-s", path, "-m", "400", "-t", "4", "-I", "1m", "-u", user])
    server.until(path.exists)
    said = []
    for number in place.rounds:
        answers = [None] * CLIENTS
        threads = [threading.Thread(target=work, args=(path, i, number, answers)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said.append(answers)
    client = Client(path)
    stats = client.stats()
    said.append({name: stats[name] for name in ("curr_items", "bytes", "evictions", "cmd_get", "cmd_set", "get_hits")})
    said.append(client.ask("flush_all"))
    client.close()
    server.stop()
    return said


def test_memcached():
    said = servers.compare("memcached", use)
    assert None not in said[0]
    assert int(said[-2]["curr_items"]) > 2000 and said[-2]["evictions"] == "0"
