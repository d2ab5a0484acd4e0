"""A good part of Python's own regression suite, with every Python object coming straight from malloc."""

import os
import xml.etree.ElementTree as ElementTree

import blackbox

PYTHON = "/usr/bin/python3"
SECONDS = 240

MODULES = """
test_threading
""".split()


def suite_verdicts(folder, preload):
    """Runs the modules and returns {test name: verdict}, and what the suite printed."""
    folder.mkdir()
    report = folder / "report.xml"
    result = blackbox.run(
        [PYTHON, "-m", "test", "-j2", "--timeout", "120", "--junit-xml", report, *MODULES],
        preload=preload, env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}, cwd=folder, timeout=SECONDS)
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
    """What the suite above rests on: Python's objects are malloc's, and malloc is HAKMEM's."""
    program = (
        "import _testcapi, ctypes\n"
        "class Where(ctypes.Structure):\n"
        "    _fields_ = [('file', ctypes.c_char_p), ('base', ctypes.c_void_p), ('name', ctypes.c_char_p),\n"
        "                ('address', ctypes.c_void_p)]\n"
        "process, where = ctypes.CDLL(None), Where()\n"
        "for name in ('malloc', 'calloc', 'realloc', 'free'):\n"
        "    address = ctypes.cast(getattr(process, name), ctypes.c_void_p)\n"
        "    assert process.dladdr(address, ctypes.byref(where))\n"
        "    print(name, where.file.decode())\n"
        "print(_testcapi.pymem_getallocatorsname())\n")
    result = blackbox.run_with_proof([PYTHON, "-c", program], env={"PYTHONMALLOC": "malloc"})
    assert result.status == 0, result.report()
    names = [f"{name} {os.path.realpath(library)}" for name in ("malloc", "calloc", "realloc", "free")]
    lines = [" ".join((line.split()[0], os.path.realpath(line.split()[1]))) for line in result.stdout.splitlines()[:4]]
    assert lines == names
    assert result.stdout.splitlines()[4] == "malloc"


def test_threads_processes_and_big_data(library):
    """One program that mixes what servers in Python do: threads, a process pool, large strings, deep structures."""
    program = (
        "import concurrent.futures, hashlib, json, multiprocessing, zlib\n"
        "def work(seed):\n"
        "    rows = [{'id': i, 'name': 'n' * (i * seed % 97), 'tags': [str(j) for j in range(i % 13)]} for i in range(4000)]\n"
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
        "    print(len(big), big.count(b'x'))\n")
    blackbox.run_both([PYTHON, "-c", program], env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}, timeout=120)
