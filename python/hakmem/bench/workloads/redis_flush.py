"""redis_flush.py FOLDER REQUESTS: what redis-server holds after FLUSHALL, on the allocator that BENCH_PRELOAD names.

REQUESTS SETs of 300 bytes on half as many keys, then FLUSHALL. Prints what the keys added to the server's RSS, and
what of it is left 1.5 s later, as a RESULT line (bench/drivers/memory.c says what the figures mean).
"""

from __future__ import annotations

import time
from pathlib import Path

from redis import PAGE_KIB, ask, check_preload, connect, expect, info, own_server, peak_kib, run_test, usage, whole

SIZE = 300
IDLE_S = 1.5


def main(folder: str, requests: str) -> None:
    """Fills the server, empties it and waits."""
    count = int(requests)
    with own_server(folder) as server:
        stream = connect(server)
        check_preload(server)

        def rss_kib() -> int:
            return int(Path(f"/proc/{server.pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_KIB

        time.sleep(IDLE_S)  # until what an allocator starts with the server's threads has settled
        start, used = rss_kib(), int(info(stream, "memory")["used_memory"])
        before = usage(server.pid, stream)
        seconds = run_test(server, count, count // 2, ["SET", "key:__rand_int__", "v" * SIZE])
        after = usage(server.pid, stream)
        full, live = rss_kib() - start, int(info(stream, "memory")["used_memory"]) - used
        expect("the reply to FLUSHALL", ask(stream, ["FLUSHALL"]), [b"OK"])
        freed = rss_kib() - start
        time.sleep(IDLE_S)
        held = rss_kib() - start
        user, system, soft, hard = (later - earlier for later, earlier in zip(after, before))
        print(f"RESULT name=redis_flush ops={count} seconds={seconds:.6f} ns_per_op={seconds * 1e9 / count:.3f} "
              f"user_s={user:.6f} sys_s={system:.6f} soft_faults={soft} hard_faults={hard} "
              f"rss_peak_kib={peak_kib(server.pid)} full_kib={full} live_kib={live // 1024} "
              f"freed_kib={max(freed, 0)} held_kib={max(held, 0)}")


whole("usage: redis_flush.py FOLDER REQUESTS", main)
