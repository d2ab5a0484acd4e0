"""Protects HAKMEM in a process that has no thread-specific keys left when HAKMEM is loaded."""

import re
from pathlib import Path

import blackbox

HERE = Path(__file__).resolve().parent


def heaps(result):
    assert result.status == 0, result.report()
    return tuple(map(int, re.search(r"heaps (\d+), orphans (\d+)", result.stdout).groups()))


def test_threads_end_without_keys(compiled, library):
    result = blackbox.run([compiled(HERE / "no_keys.c"), library, 500])
    live, orphans = heaps(result)
    assert live <= 3 and orphans <= 2, result.report()
    assert result.stderr == "", result.report()


def test_no_way_to_learn_of_a_threads_end(compiled, library, tmp_path):
    """HAKMEM reports it once, and nothing breaks."""
    source = tmp_path / "refuses.c"
    source.write_text(
        "int __cxa_thread_atexit_impl(void (*function)(void *), void *object, void *dso);\n"
        "int __cxa_thread_atexit_impl(void (*function)(void *), void *object, void *dso)\n"
        "{\n    (void)function;\n    (void)object;\n    (void)dso;\n    return -1;\n}\n"
    )
    refuses = blackbox.compile_program(source, tmp_path / "refuses.so", shared=True)
    result = blackbox.run([compiled(HERE / "no_keys.c"), library, 20], preload=refuses)
    live, _ = heaps(result)
    assert live >= 20, result.report()
    assert re.fullmatch(r"hakmem: no thread-specific key is left: [^\n]+\n", result.stderr), result.report()
