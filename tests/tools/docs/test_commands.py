"""Protects the documents' commands: each runs, and prints what the document shows."""

import pytest

import blackbox
import documents
import sessions

# Commands in documents that do not run here, with the reason. Each must still be there.
NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {
        "./hakmem test": "runs for ten minutes",
        "./hakmem test --all": "runs this test",
        "./hakmem peers build": "builds twelve allocators for a quarter of an hour; tests/tools/peers has what it does",
        "./hakmem bench --quick": "measures for three minutes; tests/tools/bench runs single rows",
        "./hakmem compare -- PROGRAM ARGUMENTS": "measures for three minutes; tests/tools/bench runs it with less",
        "./hakmem trace record -- PROGRAM": "builds into the tests' folder; docs/trace.md's is run",
        "./hakmem top PID": "wants a terminal; tests/tools/top gives it one",
    }, "docs/coverage.md": {
        "./hakmem test --coverage": "builds another flavor and runs its tests for half an hour",
        "build/venv/bin/python tools/coverage": "wants that flavor; tests/tools/project/test_coverage.py tests its parts",
        "build/venv/bin/python tools/coverage --missing src/pool": "the same",
    }, "docs/cycles.md": {
        "./hakmem run --profile -- PROGRAM ARGUMENTS": "builds another flavor; tests/process/cycles runs it there",
        "./hakmem build cycles": "builds another flavor",
        "HAKMEM_TINY_PROFILE=json LD_PRELOAD=build/cycles/lib/libhakmem.so PROGRAM ARGUMENTS": "wants that flavor",
    }, "docs/doctor.md": {"./hakmem run [OPTIONS] [--] PROGRAM [ARGUMENTS]": "is a synopsis",}, "docs/heap.md": {
        "go tool pprof app.pb.gz": "waits for commands; tests/tools/heap has pprof read files",
        "go tool pprof -tags labels.pb.gz": "compiles pprof when it is first asked for; "
        "tests/process/profile/test_profile_labels.py has it",
    }, "docs/mutation.md": {
        "build/venv/bin/python tools/mutate --list --number 10": "wants a checkout's folder; "
        "tests/tools/project/test_mutate.py runs it",
        "build/venv/bin/python tools/mutate --number 50 --seed 1": "takes half an hour; "
        "tests/tools/project/test_mutate.py tests its parts",
        "build/venv/bin/python tools/mutate --again --process": "takes as long as what the last run left",
        "build/venv/bin/python tools/mutate --at src/superslab/purge.c:180": "builds the tests and the library once "
        "more", "build/venv/bin/python tools/mutate --flavor tsan --kind order src/pool": "takes half an hour",
        "build/venv/bin/python tools/mutate --known": "takes ten minutes",
    }, "docs/serve.md": {
        "./hakmem serve PID...": "serves until it is ended; tests/tools/serve does that",
        "./hakmem serve PID --port 0": "the same", "./hakmem serve PID --interval 0.5": "the same",
        "./hakmem serve PID --token-file FILE": "the same", "./hakmem serve PID --socket PATH": "the same",
        "./hakmem serve PID --host 0.0.0.0": "the same",
        "go tool pprof http://hakmem:TOKEN@127.0.0.1:8427/debug/pprof/heap": "wants that server; tests/tools/serve has "
        "pprof read it",
    }, "docs/start/containers.md": {
        "docker build -t redis-on-hakmem -f Containerfile .": "wants Docker's daemon; the next block does what it does",
        "docker run --rm -e HAKMEM_VERBOSE=1 redis-on-hakmem redis-server --version": "the same",
        "kubectl apply -f deployment.yaml": "wants a cluster; test_files.py reads the file",
    }, "docs/start/systemd.md": {
        "mkdir -p /etc/systemd/system/redis-server.service.d": "changes the machine; test_files.py reads the file",
        "cp hakmem.conf /etc/systemd/system/redis-server.service.d/hakmem.conf": "the same",
        "systemctl daemon-reload": "wants systemd as the first process, which a container has not",
        "systemctl restart redis-server": "the same",
        "hakmem doctor $(systemctl show --property MainPID --value redis-server)": "the same",
    }, "docs/top.md": {
        "./hakmem top PID": "wants a terminal; tests/tools/top gives it one",
        "./hakmem top PID --interval 0.2": "the same", "./hakmem top": "the same",
    },
}

# Documents whose commands other tests run.
ELSEWHERE = {
    "docs/compare.md": "they measure for minutes; tests/tools/bench runs them with less",
    "docs/cxx.md": "tests/process/cxx compiles and runs its programs",
    "docs/embed.md": "tests/delivery/embed builds by each of those tools",
    "docs/jemalloc.md": "tests/process/je runs and builds what is in that seat",
    "docs/observability.md": "they are for three shells; the tests of completion have each of them",
    "docs/packages.md": "tests/delivery/package installs, uses and removes the packages",
    "docs/platforms.md": "tests/delivery/package has the libraries of all targets",
    "docs/python.md": "tests/delivery/package installs the wheels",
    "docs/release.md": "they make a release; tests/delivery/package has its parts",
}

# Words that a reader replaces. The optimiser takes seconds and changes nothing that is tested. The program allocates
# enough for samples of the heap profile, which are 512 KiB apart.
TAKES = "python3 -c 'kept = [bytes(200000) for _ in range(200)]'"
PROGRAM = {"PROGRAM ARGUMENTS": TAKES, "PROGRAM": TAKES, "PID": "$PID", "FILE": "file"}
REPLACED: dict[str, dict[str, str]] = {
    "README.md": {**PROGRAM, "cc -O2": "cc -O0", "./hakmem doctor": "ends_0_or_1 ./hakmem doctor"},
    "docs/attach.md": PROGRAM,
    "docs/doctor.md": {**PROGRAM, "./hakmem doctor": "ends_0_or_1 ./hakmem doctor"},
    "docs/budget.md": PROGRAM,
    "docs/guard.md": PROGRAM,
    "docs/heap.md": PROGRAM,
    "docs/leaks.md": PROGRAM,
    "docs/live.md": PROGRAM,
    "docs/profile.md": {"/tmp/heap.PID.gz": "heap.*.gz", "/tmp/heap.%p.gz": "heap.%p.gz",
                        "LD_PRELOAD=...": "LD_PRELOAD=$LD", **PROGRAM},
    "docs/serve.md": PROGRAM,
    "docs/start/cxx.md": {"cc -O2": "cc -O0"},
    "docs/start/leak.md": {"sleep 1": "started; sleep 1"},
    "docs/start/redis.md": {"sleep 1": "started; sleep 1"},
    "docs/top.md": PROGRAM,
    "docs/trace.md": {"./hakmem": "hakmem", "/path/libmine.so": blackbox.LIBRARY, "--rounds 7": "--rounds 1",
                      **PROGRAM},
    "docs/why.md": PROGRAM,
    "docs/tune.md": {"--rounds 3": "--rounds 1 --warm 0", **PROGRAM},
}

# What a document assumes: a process on HAKMEM with a heap profile, and a tool that may find a fault here. The process
# lives longer than a session may take, and the session ends it.
PROCESS = """
ends_0_or_1() { "$@" || test $? -eq 1; }
hakmem run --heap-profile given.pb.gz -- python3 -c 'import time
kept = [bytes(100000 + i) for i in range(300)]
print("ready", flush=True)
time.sleep(100000)' >given.txt &
PID=$!
until grep -qs ready given.txt; do sleep 0.05; done
"""
# The same, while it allocates.
ACTIVE = PROCESS.replace("time.sleep(100000)", """for i in range(10_000_000):
    kept[i % 300] = bytes(100000 + i)
    time.sleep(0.01)""")
# `sleep 1` is long enough for a reader, but not beside other tests: this waits until the started process is the program
# itself.
STARTED = """
started() { while readlink /proc/$!/exe | grep -qE '/(python[0-9.]*|dash|bash|env)$'; do sleep 0.05; done; }
"""
# A folder whose path is short: hakmem heap breaks longer ones into two lines.
SHORT = """
folder=$(mktemp -d /tmp/XXXXXX); cd "$folder"; trap 'rm -r "$folder"' EXIT
"""
PRELUDES: dict[str, str] = {
    "README.md": PROCESS + "./hakmem amalgamate .; echo 'int main(void) { return 0; }' >program.c",
    "docs/attach.md": ACTIVE,
    "docs/doctor.md": PROCESS,
    "docs/guard.md": PROCESS,
    "docs/heap.md": ACTIVE,
    "docs/live.md": PROCESS,
    "docs/profile.md": f"LD={blackbox.LIBRARY}",
    "docs/start/leak.md": STARTED,
    "docs/start/python.md": SHORT,
    "docs/start/redis.md": STARTED,
    "docs/top.md": PROCESS,
    "docs/why.md": PROCESS,
}


def with_commands() -> list[str]:
    return [name for name in documents.all_names()
            if any(block.language == "sh" for block in documents.read(name).blocks)]


@pytest.mark.parametrize("name", [name for name in with_commands() if name not in ELSEWHERE])
def test_commands_run_and_print_what_the_document_says(name, tmp_path):
    document, left_out = documents.read(name), set(NOT_RUN.get(name, ()))
    printed = sessions.run(document, tmp_path, left_out, REPLACED.get(name, {}), PRELUDES.get(name, ""))
    for block, wanted in sessions.expectations(document, left_out):
        missing = documents.unseen(wanted, printed[block.line])
        assert missing is None, f"{name}:{block.line}: {missing!r} is not in what was printed:\n{printed[block.line]}"


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_is_not_run_is_still_there(name):
    lines = {sessions.without_comment(line) for block in documents.read(name).blocks if block.language == "sh"
             for line in block.text.splitlines()}
    assert set(NOT_RUN[name]) <= lines
    assert all(NOT_RUN[name].values())
