"""Protects foreign code in the middle of HAKMEM's work (libc, handlers): no call hangs, and no memory is lost."""

from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
HUNG = 25  # times blackbox.SLOWER: more than the 60 s after which a program kills its child


@pytest.mark.parametrize("how", ["join", "stacks", "key"])
def test_free_under_the_lock_of_the_stack_cache(compiled, how):
    """A free that glibc makes under the lock of its stack cache starts no thread and waits for none."""
    blackbox.run_done([compiled(HERE / "foreign_join.c"), how], timeout=HUNG)


@pytest.fixture(scope="module")
def handler_library(compiled):
    return compiled(HERE / "fork_handlers.c", shared=True)


HANDLERS = [*(("preloaded", handler) for handler in ("prepare", "parent", "child")),
            *((how, "prepare,parent,child") for how in ("preloaded", "linked", "static", "library"))]


@pytest.mark.parametrize("how,handlers", HANDLERS)
def test_fork_handlers_registered_before_ours(compiled, library, override_archive, handler_library, how, handlers):
    """Fork handlers that run between the allocator's own, under its locks, may allocate and free."""
    env, source, preload = {"FORK_HANDLERS": handlers, "OWN_HANDLERS": "1"}, HERE / "foreign_fork.c", library
    if how == "linked":
        preload = None
        program = compiled(source, "-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}")
    elif how == "static":
        preload = None
        program = compiled(source, "-DLINKED_STATICALLY", "-DHAK_STATIC", "-static", override_archive)
    elif how == "library":
        # The last library is initialised first.
        env["OWN_HANDLERS"] = "0"
        preload = [library, handler_library]
        program = compiled(source)
    else:
        program = compiled(source)
    result = blackbox.run([program, 6], env=env, preload=preload, timeout=HUNG)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.mark.parametrize("kind,forks", [("flush", 600), ("cookie", 25), ("exit", 25)])
def test_fork_beside_streams(compiled, tmp_path, kind, forks):
    """fork waits for libc's lock of all streams, whose holder waits for memory (glibc bug 19431)."""
    blackbox.run_done([compiled(HERE / "foreign_streams.c"), kind, forks], cwd=tmp_path, timeout=HUNG)


@pytest.mark.parametrize("child", ["exit", "exec", "return"])
def test_fork_in_a_signal_handler(compiled, child):
    """A signal handler that interrupted malloc or free may fork, in a program of one thread."""
    blackbox.run_done([compiled(HERE / "foreign_signal.c"), child, 700], timeout=HUNG)


@pytest.mark.parametrize("child", ["exit", "exec", "return"])
def test_fork_in_a_signal_handler_beside_threads(compiled, library, child):
    """The same beside threads that allocate. glibc hangs there."""
    result = blackbox.run([compiled(HERE / "foreign_signal.c"), child, 100, 4], preload=library, timeout=HUNG)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def run_pressure(compiled, library, what, size):
    result = blackbox.run(
        [compiled(HERE / "foreign_pressure.c"), what, size],
        env={"HAKMEM_MEMORY_LIMIT_SOFT": "16M"},
        preload=library,
        timeout=HUNG,
    )
    assert (result.status, result.stderr) == (0, ""), result.report()
    return result.stdout


@pytest.mark.parametrize("size", [100, 5000, 100000])
@pytest.mark.parametrize("what", ["trim", "allocate", "child"])
def test_pressure_handler_that_uses_the_allocator(compiled, library, what, size):
    """What the pressure handler frees or allocates is accounted for, also of the size that is being allocated."""
    assert run_pressure(compiled, library, what, size) == "0 blocks, 0 bytes\n"


@pytest.mark.parametrize("size", [100, 5000])
def test_pressure_handler_that_idles_its_thread(compiled, library, size):
    """A pressure handler gives up its thread's cache, which another thread takes over at once."""
    # glibc keeps some bytes for the stacks of ended threads.
    assert run_pressure(compiled, library, "idle", size).startswith("0 blocks,")


@pytest.mark.parametrize("end", ["exit", "jump"])
@pytest.mark.parametrize("misuse", ["flush", "inside", "collect", "end", "dead"])
def test_abort_handler_of_misuse_found_later(compiled, library, misuse, end):
    """A handler of SIGABRT may allocate, and may jump away, when the misuse is found under the allocator's locks."""
    program = compiled(HERE / "foreign_abort.c", "-Wno-use-after-free")
    result = blackbox.run([program, misuse, end], preload=library, timeout=HUNG)
    assert result.status == 0, result.report()
    assert result.stdout == ("reported\n" if end == "exit" else "reported\ndone\n")
    assert result.stderr.startswith("hakmem: ") and result.stderr.count("\n") == 1


def test_child_of_fork_keeps_heaps(compiled, library):
    """A child of fork finds the heaps of all threads that are gone, also those between two lists."""
    result = blackbox.run([compiled(HERE / "foreign_lost.c"), 200], preload=library, timeout=HUNG)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_fork_beside_the_pressure_handler(compiled, library):
    """A child calls the pressure handler, although another thread of its parent was in it during the fork."""
    result = blackbox.run(
        [compiled(HERE / "foreign_handler_fork.c")],
        env={"HAKMEM_MEMORY_LIMIT_SOFT": "16M"},
        preload=library,
        timeout=HUNG,
    )
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_fork_beside_the_initialisation(compiled, library):
    """A child can use the library, although another thread of its parent was initialising it during the fork."""
    result = blackbox.run([compiled(HERE / "foreign_init.c"), library], timeout=HUNG)
    assert (result.status, result.stdout) == (0, "done\n"), result.report()


@pytest.mark.parametrize("child", ["exit", "exec", "return"])
def test_forks_in_signal_handlers_of_all_threads(compiled, library, child):
    """Several threads fork at once, some in a signal handler that interrupted malloc or free. A fork elsewhere may wait
    for a thread that only allocates, which waits for an interrupted one."""
    result = blackbox.run([compiled(HERE / "foreign_signal.c"), child, 150, 8, "all"], preload=library,
                          timeout=HUNG)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.mark.parametrize("what", ["use", "fork", "beside"])
@pytest.mark.parametrize("writer", ["call", "malloc"])
def test_heap_profile_beside_the_loader_lock(compiled, library, tmp_path, writer, what):
    """A thread with the dynamic loader's lock allocates, forks and uses the heap profile while another writes it."""
    env = {"HAKMEM_HEAP_PROFILE_RATE": "4096"}
    if writer == "malloc":
        env |= {"HAKMEM_HEAP_PROFILE": str(tmp_path / "profile.gz"), "HAKMEM_HEAP_PROFILE_INTERVAL": "1M"}
    result = blackbox.run([compiled(HERE / "foreign_loader.c"), writer, what], env=env, preload=library, timeout=HUNG)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()
