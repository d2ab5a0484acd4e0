"""Protects what the heap profile costs a program that ends before its first sample: system calls that write a file."""

import gzip
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import blackbox

# The kept standard error is for a message about a file that cannot be written; one number is asked for at the start,
# and one for the file's name; a write past the limit of a file's size is to bring no signal.
WRITES = Counter(fcntl=1, fstat=1, getpid=2, openat=1, rt_sigprocmask=2, write=1, close=1)
# It gives the file its name: the second time through /proc, where the kernel wants a privilege for the first way.
LINKS = (1, 2)
RENAMES = {"rename", "renameat", "renameat2"}
OLD_NAMES = {"newfstatat": "fstat", "fcntl64": "fcntl"}
MAPPING_CALLS = {"mmap", "munmap", "mremap", "mprotect", "madvise", "brk"}


def calls(library, folder, settings):
    """A run of `true`: its calls by name, and the arguments of each."""
    log = folder / "strace.log"
    words = [word for name, value in settings.items() for word in ("-E", f"{name}={value}")]
    # strace itself must not run on the library
    result = subprocess.run(["strace", "-qq", "-e", "signal=none", "-o", log, "-E", f"LD_PRELOAD={library}", *words,
                             "true"], env=blackbox.environment(), stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=blackbox.HANG, check=False)
    assert result.returncode == 0, result.stderr
    rows = re.findall(r"^(\w+)\((.*)\)\s+= ", log.read_text(), re.MULTILINE)
    return Counter(OLD_NAMES.get(name, name) for name, _ in rows), [f"{name} {arguments}" for name, arguments in rows]


@pytest.fixture(scope="module")
def without(library, tmp_path_factory):
    """Something else is set, so that the environments have as many variables."""
    return calls(library, tmp_path_factory.mktemp("without"), {"HAKMEM_CACHE_BYTES": "1048576",
                                                               "HAKMEM_FC_CAP": "256"})[0]


def test_a_program_without_samples(library, without, tmp_path):
    """At this rate a program that allocates a few KB has a sample with a chance below 1e-8."""
    made, lines = calls(library, tmp_path, {"HAKMEM_HEAP_PROFILE": tmp_path / "heap.gz",
                                            "HAKMEM_HEAP_PROFILE_RATE": "1T"})
    assert made.pop("linkat", 0) in LINKS and not RENAMES & set(made), made
    more = made - without
    assert more == WRITES and without - made == Counter(), (more, without - made)
    assert {name: made[name] for name in MAPPING_CALLS} == {name: without[name] for name in MAPPING_CALLS}
    assert not any("libgcc" in line or "/proc/" in line for line in lines), lines
    text = gzip.decompress((tmp_path / "heap.gz").read_bytes())
    assert b"alloc_space" in text and str(1 << 40).encode() in text


def test_no_file_and_no_calls_for_it(library, without, tmp_path):
    """A profile that only a report of leaks wants: what it says is one call."""
    made, _ = calls(library, tmp_path, {"HAKMEM_LEAK_REPORT": "1", "HAKMEM_HEAP_PROFILE_RATE": "1T"})
    assert not {"linkat", *RENAMES} & set(made) and made["openat"] == without["openat"]
    assert {name: made[name] for name in MAPPING_CALLS} == {name: without[name] for name in MAPPING_CALLS}
    assert not list(Path(tmp_path).glob("*.gz"))


THREADS = """
#include <pthread.h>
#include <stdlib.h>
static void *work(void *none)
{
    for (volatile int i = 0; i < 100; i++)
        free(malloc(65536));
    return none;
}
int main(void)
{
    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
        pthread_join(thread, NULL);
    }
    return 0;
}
"""


def test_threads_that_live_for_a_few_samples(library, compiled, tmp_path):
    """Each of 40 threads allocates 6 MiB, which is some 12 samples. To read the mappings for its stack would cost more
    than all of them: the main thread does so at its own samples, and the writer for the file. The main thread allocates
    less than 32 KiB, so it has more than eight samples with a chance below 1e-15."""
    source, log = tmp_path / "threads.c", tmp_path / "strace.log"
    source.write_text(THREADS)
    program = compiled(source, "-O2", "-pthread")
    words = ["strace", "-f", "-qq", "-e", "trace=openat", "-e", "signal=none", "-o", log, "-E", f"LD_PRELOAD={library}",
             "-E", f"HAKMEM_HEAP_PROFILE={tmp_path}/heap.gz", program]
    result = subprocess.run(words, env=blackbox.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=blackbox.HANG, check=False)
    assert result.returncode == 0, result.stderr
    assert log.read_text().count('"/proc/self/maps"') < 10, log.read_text()
    assert b"threads" in gzip.decompress((tmp_path / "heap.gz").read_bytes())
