"""Protects Ruby and the JVM: the output is the same on either allocator."""

from pathlib import Path

import pytest

import blackbox
import servers

HERE = Path(__file__).resolve().parent


def repeated(argv, place, timeout):
    """The program's output in every round."""
    return [place.run(argv, timeout=timeout, proof=True).stdout for _ in place.rounds]


def test_ruby():
    said = servers.compare("ruby", lambda place: repeated(["ruby", HERE / "work.rb"], place, 120))
    assert said[0].splitlines()[-1].startswith("errors ")


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """The folder of the compiled program."""
    folder = tmp_path_factory.mktemp("java")
    built = blackbox.run(["javac", "-d", folder, HERE / "Work.java"], timeout=120)
    assert built.status == 0, built.report()
    return folder


def work_in_java(classes, *options):
    argv = ["java", "-Xshare:auto", "-XX:-UsePerfData", *options, "-cp", classes, "Work", "1"]
    return lambda place: repeated(argv, place, 120)


@pytest.fixture(scope="module")
def digests(classes):
    """The program's output on either allocator. It is the same under all options of the JVM."""
    return servers.compare("java", work_in_java(classes))[0]


# Under a limit of direct memory, collections free direct buffers all the time.
MACHINES = {
    "default": [],
    "small heap": ["-Xmx32m", "-Xss256k", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=16m", "-XX:TieredStopAtLevel=1"],
    "memory tracked": ["-Xmx64m", "-XX:+UseParallelGC", "-XX:NativeMemoryTracking=detail"],
}


@pytest.mark.parametrize("name", MACHINES)
def test_java(classes, digests, name):
    assert digests.splitlines()[-1] == "done"
    if MACHINES[name]:
        assert set(servers.on_hakmem(work_in_java(classes, *MACHINES[name]))) == {digests}
