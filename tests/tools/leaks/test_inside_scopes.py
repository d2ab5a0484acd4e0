"""Protects hakmem.Scope and hakmem.within(): whose an object of Python is, caps, and what lives on."""

import sys

import pytest

import blackbox

PROGRAM = """
import gc, sys, threading
import hakmem
from hakmem import Scope, within

every_object = sys.argv[1] == "malloc"  # else pymalloc has the small ones, in memory of no scope
above = Scope("above")
alice, bob = Scope("alice", 1 << 20, above), Scope("bob", 0, above)


def live(scope):
    gc.collect()
    return scope.stats()["live"]


def raises(kind, call):
    try:
        call()
    except kind:
        return True


def make(scope, call):
    with within(scope):
        return call()


# What belongs to whom.
large = make(alice, lambda: [bytes(10_000) for _ in range(30)])
had = live(alice)
assert 300_000 < had < 400_000 and live(above) == had and live(bob) == 0
small = make(bob, lambda: [(i, object()) for i in range(10_000)])
assert (live(bob) > 10_000 * 72) == every_object and live(bob) > 80_000, live(bob)
shared = make(alice, lambda: make(None, lambda: bytes(5_000_000)))
assert live(alice) == had and shared[-1] == 0
assert alice.resident() >= 300_000 and bob.stats()["threads"] == 0
del large, small
assert live(above) < 100_000

# A tenant that fills its scope with small and large objects gets MemoryError, and leaves it.
kept = [None] * 100_000
for size in (10_000, 600, 100):
    def fill():
        for i in range(len(kept)):
            if kept[i] is None:
                kept[i] = bytes(size)
    if size > 512 or every_object:
        assert raises(MemoryError, lambda: make(alice, fill))
    assert raises(MemoryError, lambda: make(alice, lambda: bytes(2 << 20)))
    assert alice.stats()["threads"] == 0 and len(bytearray(3 << 20)) == 3 << 20
assert live(alice) <= 1 << 20 and alice.stats()["peak"] <= 1 << 20 and alice.stats()["refused"] >= 4
make(bob, lambda: bytes(3 << 20))
alice.set_cap(1000)
kept = None
alice.set_cap(0)
assert len(make(alice, lambda: bytes(3 << 20))) == 3 << 20

# Each thread is where it went.
def work(scope, count):
    with within(scope):
        kept = [bytes(1000) for _ in range(count)]
        ready.wait()
        looked.wait()

ready, looked = threading.Barrier(3), threading.Barrier(3)
alices, bobs = live(alice), live(bob)
threads = [threading.Thread(target=work, args=pair) for pair in ((alice, 100), (bob, 200))]
for thread in threads:
    thread.start()
ready.wait()
assert 100_000 < live(alice) - alices < 150_000 and 200_000 < live(bob) - bobs < 300_000
assert raises(OSError, alice.close) and raises(OSError, above.close)
looked.wait()
for thread in threads:
    thread.join()

# The end: blocks live on, and count above.
kept = make(bob, lambda: [bytes([i % 250]) * 5000 for i in range(100)])
bob.close()
bob.close()
assert live(above) >= 500_000 and all(kept[i] == bytes([i % 250]) * 5000 for i in range(100))
assert raises(ValueError, bob.stats) and raises(ValueError, lambda: within(bob).__enter__())
assert raises(ValueError, lambda: Scope("below", 0, bob))
del kept
assert live(above) < 400_000

# Misuse.
for wrong in ("", "a\\0b", 'a"b', "\\u00e4", "x" * 48):
    assert raises(ValueError, lambda: Scope(wrong)), wrong
for wrong in (-1, 1 << 63, 1.5):
    assert raises(ValueError, lambda: Scope("a", wrong)) and raises(ValueError, lambda: alice.set_cap(wrong)), wrong

def task(scope):
    with within(scope):
        yield

carol = Scope("carol")
first, second = task(alice), task(carol)
next(first), next(second)
first.close()
assert raises(RuntimeError, second.close)
third = task(alice)
next(third)
thread = threading.Thread(target=lambda: seen.append(raises(RuntimeError, third.close)))
seen = []
thread.start()
thread.join()
assert seen == [True] and raises(OSError, alice.close)
inside = within(carol)
with inside:
    assert raises(RuntimeError, inside.__enter__)
del carol, first, second, third, inside
print("done")
"""


@pytest.mark.parametrize("allocator", ["pymalloc", "malloc"])
@pytest.mark.parametrize("name", ["libhakmem", "libhakmem-secure"])
def test_tenants(name, allocator):
    result = blackbox.run([sys.executable, "-c", PROGRAM, allocator], env={"PYTHONMALLOC": allocator},
                          preload=blackbox.LIBRARY_FOLDER / f"{name}.so")
    assert (result.status, result.stdout) == (0, "done\n"), result.report()
