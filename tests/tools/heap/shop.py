# -*- coding: utf-8 -*-
"""Allocates known amounts at lines that tests find by their marks. With "started" as an
argument it waits for a line before it does so, with "wait" it waits at its end."""

import ctypes
import sys
import threading
import zlib

KEPT = []


def grow(count):
    for _ in range(count):
        KEPT.append(bytearray(5000))  # LINE grow


class Shop:
    def fill(self, count):
        grow(count)  # LINE fill
        return list(
            bytearray(  # LINE inner
                4000)
            for _ in range(count))


def each(count):
    for _ in range(count):
        yield bytearray(4000)  # LINE each


def by_key(value):
    KEPT.append(bytearray(6000))  # LINE key
    return value


def größe(count):
    try:
        raise KeyError("none")
    except KeyError:
        return [bytearray(3000) for _ in range(count)]  # LINE wide


def work():
    KEPT.append(list(each(2000)))  # LINE work


def deep(depth):
    if depth:
        deep(depth - 1)  # LINE deep
    else:
        KEPT.append([bytearray(8000) for _ in range(500)])


def recur(depth):
    """C calls Python calls C: each level is another run of the interpreter's loop."""
    return max([depth], key=lambda value: recur(value - 1) if value else grow(300))  # LINE recur


def far(count):
    # The table of lines has a jump here that does not fit one byte.
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    #
    return [bytearray(7500) for _ in range(count)]  # LINE far


def main():
    KEPT.append(Shop().fill(2000))  # LINE main
    sorted(range(2000), key=by_key)  # LINE sorted
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    names = {}
    source = "def made(count):\n    return [bytearray(7000)\n            for _ in range(count)]\n"
    exec(compile(source, "<made \U0001f389>", "exec"), names)
    KEPT.append(names.pop("made")(1000))  # the function is gone at the end
    KEPT.append(größe(1000))
    deep(100)
    recur(10)
    KEPT.append(far(500))
    KEPT.append(zlib.decompress(zlib.compress(bytes(3000000))))  # LINE zlib
    ctypes.CDLL(None).malloc(900000)  # LINE leak
    if "wait" in sys.argv:
        print("ready", flush=True)
        sys.stdin.read()


if "started" in sys.argv:
    print("started", flush=True)
    sys.stdin.readline()
main()
