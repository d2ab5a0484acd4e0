"""Protects what programs rely on in a malloc, as the tests of other allocators and of C libraries show it."""

from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
HUNG = 25  # times blackbox.SLOWER: more than the 60 s after which a program kills its child


@pytest.mark.parametrize("how", ["detached", "dlclose"])
def test_free_where_threads_and_libraries_end(compiled, how):
    """A free that glibc makes when a detached thread ends, or in dlclose, starts no thread and waits for none."""
    blackbox.run_done([compiled(HERE / "foreign_join.c"), how], timeout=HUNG)


@pytest.mark.parametrize("handlers", ["none", "prepare", "parent", "child", "prepare,parent,child"])
def test_fork_handlers_registered_after_ours(compiled, library, handlers):
    """Fork handlers of a library that was initialised after the allocator may allocate and free."""
    handler_library = compiled(HERE / "fork_handlers.c", shared=True)
    result = blackbox.run(
        [compiled(HERE / "foreign_fork.c"), 6],
        env={"FORK_HANDLERS": handlers},
        preload=[handler_library, library],
        timeout=HUNG,
    )
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


@pytest.mark.parametrize("kind", ["streams", "names", "library", "locale", "spawn"])
def test_fork_beside_libc_that_allocates(compiled, tmp_path, kind):
    """fork works beside libc functions that allocate under libc's own locks."""
    blackbox.run_done([compiled(HERE / "foreign_streams.c"), kind, 200], cwd=tmp_path, timeout=HUNG)


@pytest.mark.parametrize("size", [100, 5000, 100000])
@pytest.mark.parametrize("what", ["collect", "thread", "fork"])
def test_pressure_handler(compiled, library, what, size):
    """A pressure handler may collect, start threads or fork, and no memory is lost."""
    result = blackbox.run(
        [compiled(HERE / "foreign_pressure.c"), what, size],
        env={"HAKMEM_MEMORY_LIMIT_SOFT": "16M"},
        preload=library,
        timeout=HUNG,
    )
    # glibc keeps some bytes for the stacks of ended threads.
    assert result.status == 0 and result.stdout.startswith("0 blocks,"), result.report()
    assert what == "thread" or result.stdout == "0 blocks, 0 bytes\n"


@pytest.mark.parametrize("end", ["exit", "jump"])
@pytest.mark.parametrize("misuse", ["direct", "batch", "remote", "heap", "huge", "wild", "resize"])
def test_abort_handler_of_misuse_found_at_once(compiled, library, misuse, end):
    """A handler of SIGABRT may allocate, and may jump away, when the call itself finds the misuse."""
    program = compiled(HERE / "foreign_abort.c", "-Wno-use-after-free")
    result = blackbox.run([program, misuse, end], preload=library, timeout=HUNG)
    assert result.status == 0, result.report()
    assert result.stdout == ("reported\n" if end == "exit" else "reported\ndone\n")
    assert result.stderr.startswith("hakmem: ") and result.stderr.count("\n") == 1


def test_alignment_of_every_power(compiled):
    """Aligned blocks are aligned, keep their contents, and are resized and freed like any other block."""
    blackbox.run_done([compiled(HERE / "align.c")], timeout=HUNG)


def test_resize_of_every_size(compiled):
    """realloc keeps the contents from each size to each other. calloc of used memory reads zero."""
    blackbox.run_done([compiled(HERE / "resize.c", "-Wno-use-after-free")], timeout=HUNG)


def test_refusals(compiled):
    """A request that is too large, or that the system refuses, fails with errno. free keeps errno."""
    blackbox.run_done([compiled(HERE / "refused.c", "-Wno-use-after-free")], timeout=HUNG)


def test_cancellation_that_is_pending(compiled):
    """No function of the allocator is a cancellation point, and a cancelled thread leaves no lock held."""
    blackbox.run_done([compiled(HERE / "cancel_pending.c")], timeout=HUNG)


def test_blocks_that_outlive_a_library(compiled):
    """Blocks of a library outlive dlclose. Its constructors, destructors and threads may allocate."""
    library = compiled(HERE / "endings_library.c", shared=True)
    blackbox.run_done([compiled(HERE / "endings.c"), "library", library], timeout=HUNG)


@pytest.mark.parametrize("how", ["thread", "main", "exit", "idle"])
def test_endings(compiled, how):
    """Blocks outlive their threads. exit, pthread_exit and destructors may allocate, free and idle their thread."""
    blackbox.run_done([compiled(HERE / "endings.c"), how], timeout=HUNG)


def test_blocks_that_libc_gives(compiled):
    """Blocks from strdup, asprintf, getline, open_memstream, scandir etc. are resized and freed like any other."""
    blackbox.run_done([compiled(HERE / "given.c")], timeout=HUNG)


def test_knobs_and_figures_in_threads(compiled):
    """mallopt, malloc_trim, mallinfo2, malloc_info and malloc_stats work beside threads that allocate."""
    blackbox.run_done([compiled(HERE / "knobs.c")], timeout=HUNG)


@pytest.mark.parametrize("kind", ["signals", "jumps", "crowd", "brief", "vfork", "raw", "stacks", "alone"])
def test_storms(compiled, kind):
    """Many signals, many threads, code that leaves its stack, and processes that share memory do no harm."""
    blackbox.run_done([compiled(HERE / "storm.c"), kind], timeout=HUNG)


@pytest.mark.parametrize("options", [{}, {"HAKMEM_PURGE_THREAD": "always"}], ids=["default", "always"])
@pytest.mark.parametrize("what", ["signal", "ids"])
def test_purge_thread_is_not_seen(compiled, what, options):
    """The purge thread takes none of the program's signals, and does not delay setresuid."""
    blackbox.run_done([compiled(HERE / "quiet_thread.c"), what], env=options, timeout=HUNG)


def test_one_thread_again(compiled):
    """A program that joined its threads has one thread again, as unshare, setns and sandboxes require."""
    blackbox.run_done([compiled(HERE / "quiet_thread.c"), "single"], timeout=HUNG)
