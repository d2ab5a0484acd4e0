"""A good part of Python's own regression suite, with every Python object coming straight from malloc."""

import xml.etree.ElementTree as ElementTree

import blackbox

PYTHON = "/usr/bin/python3"
SECONDS = 240

# Not here: test_socket (hangs on kernels whose vsock has no peer, on the system's allocator too); test_asyncio,
# test_ssl, test_io, test_signal and test_faulthandler (minutes of waiting each, for little that the others do not do).
MODULES = """
test_multiprocessing_spawn test_multiprocessing_fork test_concurrent_futures test_threading test_subprocess
test_thread test_threading_local test_threadsignals test_queue test_fork1 test_threadedtempfile test_context
test_json test_dict test_list test_tuple test_set test_deque test_bytes test_unicode test_string test_format
test_gc test_weakref test_weakset test_finalization test_descr test_class test_super test_exceptions test_traceback
test_generators test_ctypes test_struct test_array test_memoryview test_buffer test_memoryio test_mmap test_pickle
test_marshal test_copy test_zlib test_bz2 test_hashlib test_dbm_dumb test_csv test_pyexpat test_xml_etree
test_re test_decimal test_long test_int test_float test_collections test_heapq test_itertools test_functools test_sort
test_random test_datetime test_codecs test_tracemalloc test_atexit test_os test_select
""".split()

# Classes of tests that do nothing but sleep, or start a server process for each test a third time.
IGNORED = [
    "*WaitTest*",
    "*Forkserver*",
    "*.TestWait.*",
    "*Barrier*",
    "*Finalize*",
    "*ResourceTracker*",
    "*AsCompletedTest*",
    "*PollEintr*",
    "*Condition*",
    "*TestPoll.*",
    "*spawn.WithManager*",
    "*spawn.WithThreads*",
    "*spawn.TestSyncManagerTypes*",
    "*ProcessPoolSpawn*",
    "*spawn.WithProcessesTestPoolWorkerLifetime*",
    "*test_weakref.MappingTestCase*",
]


def suite_verdicts(folder, preload):
    """Runs the modules and returns {test name: verdict}, and what the suite printed."""
    folder.mkdir()
    report = folder / "report.xml"
    result = blackbox.run(
        [
            PYTHON,
            "-m",
            "test",
            "-j4",
            "--timeout",
            "180",
            "--junit-xml",
            report,
            *(word for pattern in IGNORED for word in ("--ignore", pattern)),
            *MODULES,
        ],
        preload=preload,
        env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"},
        cwd=folder,
        timeout=SECONDS,
    )
    assert report.exists(), result.report()
    verdicts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        children = {child.tag for child in case}
        verdicts[case.get("name")] = "failed" if children & {"failure", "error"} else case.get("result", "completed")
    return verdicts, result


def test_regression_suite_gives_the_same_verdicts(tmp_path, library):
    plain_verdicts, plain = suite_verdicts(tmp_path / "plain", None)
    assert plain.status == 0, f"under the system's allocator: {plain.report()}"
    our_verdicts, ours = suite_verdicts(tmp_path / "hakmem", library)
    assert ours.status == 0, f"under HAKMEM: {ours.report()}"
    assert len(plain_verdicts) > 4000
    assert our_verdicts == plain_verdicts


def test_every_object_comes_from_the_library(library):
    """What the suite above rests on: Python's objects are malloc's blocks, and malloc is HAKMEM's, which knows them."""
    program = (
        "import _testcapi, ctypes, sys\n"
        "usable = ctypes.CDLL(sys.argv[1]).hak_usable_size\n"
        "usable.restype, usable.argtypes = ctypes.c_size_t, [ctypes.c_void_p]\n"
        "for thing in (b'x' * 5, b'x' * 1000, 'text' * 30000, bytes(3000000), 1.5, 10 ** 100):\n"
        "    assert sys.getsizeof(thing) <= usable(id(thing)) <= sys.getsizeof(thing) * 1.3 + 4096\n"
        "print(_testcapi.pymem_getallocatorsname())\n"
    )
    result = blackbox.run_with_proof([PYTHON, "-c", program, library], env={"PYTHONMALLOC": "malloc"})
    assert (result.status, result.stdout, result.stderr) == (0, "malloc\n", ""), result.report()


def test_threads_processes_and_big_data(library):
    """One program that mixes what servers in Python do: threads, a process pool, large strings, deep structures."""
    program = (
        "import concurrent.futures, hashlib, json, multiprocessing, zlib\n"
        "def work(seed):\n"
        "    rows = [{'id': i, 'name': 'n' * (i * seed % 97), 'tags': [str(j) for j in range(i % 13)]}"
        "            for i in range(4000)]\n"
        "    text = json.dumps(rows, sort_keys=True)\n"
        "    assert json.loads(text) == rows\n"
        "    return hashlib.sha256(zlib.compress(text.encode())).hexdigest()\n"
        "if __name__ == '__main__':\n"
        "    with concurrent.futures.ThreadPoolExecutor(4) as pool:\n"
        "        print(*pool.map(work, range(8)), sep='\\n')\n"
        "    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('fork')) as pool:\n"
        "        print(*pool.map(work, range(4)), sep='\\n')\n"
        "    big = bytearray(200_000_000)\n"
        "    big[::4096] = b'x' * len(big[::4096])\n"
        "    big.extend(bytes(100_000_000))\n"
        "    print(len(big), big.count(b'x'))\n"
    )
    blackbox.run_both([PYTHON, "-c", program], env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}, timeout=120)
