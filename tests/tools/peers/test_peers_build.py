"""Protects the build of peers: results stay, changes build again, and a failure is reported and affects no other."""

import os
import stat
import threading
import time

import blackbox
import pytest

from hakmem import paths, peers
from hakmem.peers import PeersError, build, progress
from hakmem.peers.progress import step_text
from hakmem.peers.recipes import Recipe
from hakmem.peers.steps import TAIL, Steps

BUILDS = []


def build_from_hakmem(steps, source, work):
    """Stands for a peer's build. HAKMEM passes the whole check."""
    BUILDS.append(source)
    steps.run("cp", paths.hakmem_library(), work / "libresult.so")
    return work / "libresult.so"


def build_that_fails(steps, source, work):
    steps.run("sh", "-c", "seq 100 >&2; exit 3")


def fake(name, function=build_from_hakmem, **more):
    return Recipe(name, "MIT", "snmalloc-sys", function, lambda source: "1.2.3", ("cc",), **more)


@pytest.fixture
def folder(tmp_path, monkeypatch, library):
    place = tmp_path / "peers"
    monkeypatch.setenv("HAKMEM_PEERS_DIR", str(place))
    monkeypatch.setattr(build, "fetch_sources", lambda folder: tmp_path)
    monkeypatch.setattr(build, "RECIPES", {"one": None, "two": None})
    monkeypatch.setattr(paths, "hakmem_library", lambda: library)
    BUILDS.clear()
    return place


def build_all(*recipes, anew=False):
    told = []
    errors = build.build_peers(recipes, anew, lambda recipe, peer, made, error: told.append((recipe.name, made)))
    return told, errors


def test_a_peer_is_built_once(folder):
    assert build_all(fake("one")) == ([("one", True)], [])
    assert build_all(fake("one")) == ([("one", False)], [])
    peer = peers.load_peers()["one"]
    assert (peer.library, peer.version) == (folder / "one/libone.so", "1.2.3")
    assert peer.source == "crates.io snmalloc-sys " + build.locked_crates()["snmalloc-sys"][0]
    assert "malloc" in peer.serves
    assert not (folder / "one/work").exists()
    assert len(BUILDS) == 1


def test_a_peer_is_built_again_when_its_recipe_or_its_library_changes_or_it_is_asked_for(folder):
    build_all(fake("one"))
    assert build_all(fake("one", setting={"A": "b"})) == ([("one", True)], [])
    assert peers.load_peers()["one"].setting == {"A": "b"}
    assert len(BUILDS) == 1
    (folder / "one/libone.so").write_bytes(b"")
    assert build_all(fake("one", setting={"A": "b"})) == ([("one", True)], [])
    assert build_all(fake("one", setting={"A": "b"}), anew=True) == ([("one", True)], [])
    assert build_all(fake("one", lambda *arguments: build_from_hakmem(*arguments))) == ([("one", True)], [])
    assert len(BUILDS) == 4


def test_a_new_check_does_not_need_a_new_build(folder, monkeypatch):
    build_all(fake("one"))
    source = folder / "probe.c"
    source.write_text(build.probe.SOURCE.read_text() + "// Another.\n")
    monkeypatch.setattr(build.probe, "SOURCE", source)
    assert build_all(fake("one")) == ([("one", True)], [])
    assert len(BUILDS) == 1
    source.write_text("int main(void) { return 1; }\n")
    _, errors = build_all(fake("one"))
    assert "probe" in errors[0].message and "status 1" in errors[0].message
    assert peers.load_peers() == {}


def test_one_that_fails_leaves_the_others(folder):
    build_all(fake("one"))
    told, errors = build_all(fake("one", build_that_fails), fake("two"))
    assert told == [("one", False), ("two", True)]
    assert list(peers.load_peers()) == ["two"]
    build_all(fake("one"))
    assert list(peers.load_peers()) == ["one", "two"]
    message = errors[0].message
    assert message.startswith("one: sh ") and "status 3" in message
    assert str(folder / "one/build.log") in message
    assert message.splitlines()[1:] == [str(number) for number in range(101 - TAIL, 101)]


def test_a_library_that_does_not_serve_is_no_peer(folder, compiled, tmp_path):
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    empty = compiled(source, shared=True)
    _, errors = build_all(fake("one", lambda steps, source, work: empty))
    assert "malloc" in errors[0].message
    assert peers.load_peers() == {}


def test_commands_that_are_missing_are_named_with_their_packages(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    _, errors = build_all(fake("one"))
    assert "one" in errors[0].message and "apt-get install gcc libc6-dev" in errors[0].message


@pytest.mark.parametrize("script, message", [
    (None, "apt-get install cargo-web"),
    ("echo cargo 1.65.0", r"1\.65\.0.* 1\.87.*apt-get install cargo-web"),
    ("echo broken >&2; exit 1", "cargo --version.*broken"),
])
def test_cargo_must_be_there_and_new_enough(monkeypatch, tmp_path, script, message):
    if script:
        cargo = tmp_path / "cargo"
        cargo.write_text(f"#!/bin/sh\n{script}\n")
        cargo.chmod(cargo.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeersError, match=message):
        build.fetch_sources(tmp_path)


def test_a_package_that_is_missing_is_named(folder):
    recipe = Recipe("two", "MIT", package="hakmem-no-such-package", file="libx.so")
    _, errors = build_all(recipe)
    assert "two" in errors[0].message and "apt-get install hakmem-no-such-package" in errors[0].message


def test_a_folder_that_cannot_be_preloaded_from_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HAKMEM_PEERS_DIR", str(tmp_path / "a folder"))
    with pytest.raises(PeersError, match="a folder"):
        build_all(fake("one"))


def test_a_step_does_not_see_the_shell_s_flags(monkeypatch, tmp_path):
    monkeypatch.setenv("CFLAGS", "-march=native")
    monkeypatch.setenv("LD_PRELOAD", "")
    said = Steps("x", tmp_path / "log").run("env", setting={"OWN": "1"})
    assert "CFLAGS" not in said and "LD_PRELOAD" not in said and "OWN=1" in said


def test_a_step_whose_command_is_missing_is_named(tmp_path):
    with pytest.raises(PeersError, match="x: hakmem-no-such-command"):
        Steps("x", tmp_path / "log").run("hakmem-no-such-command")


# ---- Progress messages ----

class Listener:
    """Keeps the progress messages of a build."""

    def __init__(self):
        self.told = []

    def begin(self, name, log):
        self.told.append(("begin", name, str(log)))

    def step(self, words):
        self.told.append(("step", step_text(words)))

    def end(self):
        self.told.append(("end",))


def test_versions_come_before_the_first_build(folder, monkeypatch):
    told, listener = [], Listener()
    monkeypatch.setattr(build, "fetch_sources", lambda folder, progress=None: folder)
    build.build_peers([fake("one"), fake("two"), Recipe("absent", "MIT", package="hakmem-no-such-package", file="x")],
                      False, lambda recipe, peer, made, error: told.append((recipe.name, made)), listener,
                      lambda recipe, version: told.append((recipe.name, version, len(BUILDS))))
    assert told == [("one", "1.2.3", 0), ("two", "1.2.3", 0), ("absent", None, 0), ("one", True), ("two", True),
                    ("absent", False)]
    assert listener.told[0] == ("begin", "one", str(folder / "one/build.log"))
    assert [kind for kind, *_ in listener.told].count("step") >= 4 and listener.told.count(("end",)) == 2


def test_a_log_grows_while_a_step_runs(tmp_path):
    """Both outputs, as they come."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    os.mkfifo(gate)
    said = []
    script = 'echo to out; echo to err >&2; cat "$1"; echo last'
    thread = threading.Thread(target=lambda: said.append(Steps("x", log).run("sh", "-c", script, "sh", gate)))
    thread.start()
    with open(gate, "w", encoding="ascii") as opened:
        deadline = time.monotonic() + blackbox.HANG
        while not {"to out", "to err"} <= set(log.read_text().splitlines()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert {"to out", "to err"} <= set(log.read_text().splitlines())
        opened.write("from the gate\n")
    thread.join()
    assert said == ["to out\nfrom the gate\nlast\n"]
    assert log.read_text().splitlines()[-2:] == ["from the gate", "last"]


def test_without_a_terminal_steps_are_lines(tmp_path, capfd, monkeypatch):
    """The log's path, and the last line of a step that runs."""
    monkeypatch.setattr(progress, "SECONDS", 0)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    shown = progress.Progress()
    shown.begin("one", tmp_path / "log")
    step = threading.Thread(target=lambda: Steps("one", tmp_path / "log", shown).run(
        "sh", "-c", 'echo "[3/340] Building x"; cat "$1"', "sh", gate))
    step.start()
    lines = []

    def told():
        lines.extend(capfd.readouterr().err.splitlines())
        return any("[3/340] Building x" in line for line in lines)

    try:
        blackbox.wait_for(told, "the line of the step")
    finally:
        gate.write_text("")
        step.join()
        shown.end()
    assert str(tmp_path / "log") in lines[0]


def test_only_what_the_chosen_peers_lack_is_asked_for(folder, monkeypatch, tmp_path):
    """A packaged peer does not need cargo. A built peer needs it until its sources are there."""
    package = Recipe("two", "MIT", package="hakmem-no-such-package", file="libx.so")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.packages_for([package], folder) == ["hakmem-no-such-package"]
    assert build.packages_for([fake("one")], folder) == ["gcc", "libc6-dev", "cargo-web"]
    (folder / "crates").mkdir(parents=True)
    (folder / "crates/locked").write_text(build.digest_of(build.HERE / "Cargo.lock"))
    assert build.packages_for([fake("one")], folder) == ["gcc", "libc6-dev"]
    monkeypatch.undo()
    assert build.packages_for([fake("one")], folder) == []
