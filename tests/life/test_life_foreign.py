"""Code that is not the allocator's, in the middle of its work: libc under its own locks, fork handlers, signal handlers,
pressure handlers. Nothing of it may hang, and nothing may be lost."""

from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
HUNG = 25  # times blackbox.SLOWER: more than the 60 s after which a program gives up on a child


@pytest.mark.parametrize("how", ["join", "stacks", "key"])
def test_free_under_the_lock_of_the_stack_cache(compiled, how):
    """A free that glibc makes under the lock of its stack cache starts no thread and waits for none."""
    blackbox.run_both([compiled(HERE / "foreign_join.c"), how], timeout=HUNG)


@pytest.fixture(scope="module")
def handler_library(compiled):
    return compiled(HERE / "fork_handlers.c", shared=True)


@pytest.mark.parametrize("handlers", ["prepare", "parent", "child", "prepare,parent,child"])
@pytest.mark.parametrize("how", ["preloaded", "linked", "static", "library"])
def test_fork_handlers_registered_before_ours(compiled, library, override_archive, handler_library, how, handlers):
    """Fork handlers that run between the allocator's own, so with its locks taken, allocate and free everything."""
    env, source, preload = {"FORK_HANDLERS": handlers, "OWN_HANDLERS": "1"}, HERE / "foreign_fork.c", library
    if how == "linked":
        preload = None
        program = compiled(source, "-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}")
    elif how == "static":
        preload = None
        program = compiled(source, "-DLINKED_STATICALLY", "-DHAK_STATIC", "-static", override_archive)
    elif how == "library":
        # The last of the libraries is initialised first.
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
    blackbox.run_both([compiled(HERE / "foreign_streams.c"), kind, forks], cwd=tmp_path, timeout=HUNG)


@pytest.mark.parametrize("child", ["exit", "exec", "return"])
def test_fork_in_a_signal_handler(compiled, child):
    """A signal handler that interrupted malloc or free forks, in a program of one thread."""
    blackbox.run_both([compiled(HERE / "foreign_signal.c"), child, 700], timeout=HUNG)


@pytest.mark.parametrize("child", ["exit", "exec", "return"])
def test_fork_in_a_signal_handler_beside_threads(compiled, library, child):
    """The same where other threads allocate; glibc hangs there."""
    result = blackbox.run([compiled(HERE / "foreign_signal.c"), child, 250, 4], preload=library, timeout=HUNG)
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
    """What the pressure handler frees or allocates is accounted for, of the size that is being allocated too."""
    assert run_pressure(compiled, library, what, size) == "0 blocks, 0 bytes\n"


@pytest.mark.parametrize("size", [100, 5000])
def test_pressure_handler_that_idles_its_thread(compiled, library, size):
    """A pressure handler gives up its thread's cache, which another thread takes over at once."""
    # Of the bytes, glibc keeps some for the stacks of ended threads.
    assert run_pressure(compiled, library, "idle", size).startswith("0 blocks,")


@pytest.mark.parametrize("end", ["exit", "jump"])
@pytest.mark.parametrize("misuse", ["flush", "inside", "collect", "end", "dead"])
def test_abort_handler_of_misuse_found_later(compiled, library, misuse, end):
    """A handler of SIGABRT allocates, and jumps away, where the misuse is found among the allocator's locks."""
    program = compiled(HERE / "foreign_abort.c", "-Wno-use-after-free")
    result = blackbox.run([program, misuse, end], preload=library, timeout=HUNG)
    assert result.status == 0, result.report()
    assert result.stdout == ("reported\n" if end == "exit" else "reported\ndone\n")
    assert result.stderr.startswith("hakmem: ") and result.stderr.count("\n") == 1


def test_child_of_fork_keeps_heaps(compiled, library):
    """A child of fork finds the heaps of all threads that are gone, those on their way from one list to another too."""
    result = blackbox.run([compiled(HERE / "foreign_lost.c"), 200], preload=library, timeout=HUNG)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_fork_beside_the_pressure_handler(compiled, library):
    """A child calls the pressure handler, though another thread of its parent was in it as the child was made."""
    result = blackbox.run(
        [compiled(HERE / "foreign_handler_fork.c")],
        env={"HAKMEM_MEMORY_LIMIT_SOFT": "16M"},
        preload=library,
        timeout=HUNG,
    )
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_fork_beside_the_initialisation(compiled, library):
    """A child can use the library, though another thread of its parent was initialising it as the child was made."""
    result = blackbox.run([compiled(HERE / "foreign_init.c"), library], timeout=HUNG)
    assert (result.status, result.stdout) == (0, "done\n"), result.report()


@pytest.mark.parametrize("child", ["exit", "exec", "return"])
def test_forks_in_signal_handlers_of_all_threads(compiled, library, child):
    """Several threads fork at once, some of them in a signal handler that interrupted malloc or free."""
    result = blackbox.run([compiled(HERE / "foreign_signal.c"), child, 250, 3, "all"], preload=library, timeout=HUNG)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.mark.parametrize("what", ["use", "fork", "beside"])
@pytest.mark.parametrize("writer", ["call", "malloc"])
def test_heap_profile_beside_the_loader_lock(compiled, library, tmp_path, writer, what):
    """A thread that holds the dynamic loader's lock allocates, forks and uses the heap profile while another writes it."""
    env = {"HAKMEM_HEAP_PROFILE_RATE": "4096"}
    if writer == "malloc":
        env |= {"HAKMEM_HEAP_PROFILE": str(tmp_path / "profile.gz"), "HAKMEM_HEAP_PROFILE_INTERVAL": "1M"}
    result = blackbox.run([compiled(HERE / "foreign_loader.c"), writer, what], env=env, preload=library, timeout=HUNG)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()
