"""Protects much of Python's own regression suite, with each Python object allocated by malloc."""

import re
import xml.etree.ElementTree as ElementTree

import blackbox

PYTHON = "/usr/bin/python3"
SECONDS = 240

# Modules that compute. soak_python.py has those with processes and threads, which take minutes or have bounds of time.
MODULES = """
test_thread test_threading_local test_threadedtempfile test_context test_json test_dict test_list test_tuple test_set
test_deque test_bytes test_string test_format test_gc test_weakref test_weakset test_descr test_class test_super
test_exceptions test_traceback test_generators test_ctypes test_struct test_array test_memoryview test_memoryio
test_mmap test_pickle test_marshal test_copy test_zlib test_hashlib test_csv test_xml_etree test_re test_decimal
test_long test_int test_float test_collections test_heapq test_itertools test_functools test_sort test_datetime
test_codecs test_tracemalloc test_atexit
""".split()
IGNORED = ["*test_weakref.MappingTestCase*"]
# A shell makes what it starts with "&" ignore SIGINT, and some tests send it to themselves.
SIGNALS = ["env", "--default-signal=INT"]


def suite_verdicts(folder, preload, modules, ignored, only=()):
    """Runs the modules without the ignored tests, or only those in `only`. Returns {test name: verdict} and the suite's
    output."""
    folder.mkdir()
    report, names = folder / "report.xml", folder / "names"
    names.write_text("".join(f"{pattern(name)}\n" for name in only))
    result = blackbox.run(
        [
            *SIGNALS,
            PYTHON,
            "-m",
            "test",
            "-j2",
            "--timeout",
            str(blackbox.HANG),
            "--junit-xml",
            report,
            *(word for pattern in ignored for word in ("--ignore", pattern)),
            *(["--matchfile", names] if only else []),
            *modules,
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
        verdicts[case.get("name")] = ("failed" if children & {"failure", "error"} else
                                      "skipped" if "skipped" in children else case.get("result", "completed"))
    return verdicts, result


def pattern(name):
    """The --matchfile pattern for a test in a report: the test, or for a subtest its test, or for a class or module
    that was skipped as a whole all tests in it."""
    whole = re.fullmatch(r"setUp\w+ \((.*)\)", name)
    return f"{whole[1]}.*" if whole else name.partition(" ")[0]


def check_verdicts(folder, library, modules, ignored, least):
    """A test that passes cannot do better on the system's allocator, so only the tests skipped here run there."""
    our_verdicts, ours = suite_verdicts(folder / "hakmem", library, modules, ignored)
    assert ours.status == 0, f"under HAKMEM: {ours.report()}"
    assert len(our_verdicts) > least
    skipped = {name: verdict for name, verdict in our_verdicts.items() if verdict != "completed"}
    assert len(skipped) < len(our_verdicts) / 10, sorted(skipped)
    assert skipped, "some tests are for other systems"
    plain_verdicts, plain = suite_verdicts(folder / "plain", None, modules, ignored, skipped)
    assert plain.status == 0, f"under the system's allocator: {plain.report()}"
    assert {name: plain_verdicts.get(name) for name in skipped} == skipped


def test_regression_suite_gives_the_same_verdicts(tmp_path, library):
    check_verdicts(tmp_path, library, MODULES, IGNORED, 3000)


def test_every_object_comes_from_the_library(library):
    """The suite relies on this: Python's objects are malloc's blocks, and malloc is HAKMEM's."""
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
    """One program mixes what Python servers do: threads, a process pool, large strings, deep structures."""
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
        "    big = bytearray(60_000_000)\n"
        "    big[::4096] = b'x' * len(big[::4096])\n"
        "    big.extend(bytes(30_000_000))\n"
        "    print(len(big), big.count(b'x'))\n"
    )
    blackbox.run_both([PYTHON, "-c", program], env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}, timeout=120)
