"""Protects the long modules of Python's own regression suite: processes, threads, and what starts them."""

from test_programs_python import check_verdicts

# Not in the list: test_socket, which hangs on kernels whose vsock has no peer, on any allocator; test_asyncio,
# test_ssl, test_io, test_signal and test_faulthandler, which wait for minutes and add little.
MODULES = """
test_multiprocessing_spawn test_multiprocessing_fork test_concurrent_futures test_threading test_subprocess
test_threadsignals test_queue test_fork1 test_unicode test_finalization test_buffer test_bz2 test_dbm_dumb test_pyexpat
test_random test_os test_select
""".split()

# Classes of tests that only sleep, or start a server process for each test a third time.
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
]


def test_regression_suite_gives_the_same_verdicts(tmp_path, library):
    check_verdicts(tmp_path, library, MODULES, IGNORED, 1000)
