"""Building: what is built stays, what changes is built again, what fails is told and leaves the others alone."""

import stat

import pytest

from hakmem import paths, peers
from hakmem.peers import PeersError, build
from hakmem.peers.recipes import Recipe
from hakmem.peers.steps import TAIL, Steps

BUILDS = []


def build_from_hakmem(steps, source, work):
    """Stands for a peer's build: HAKMEM serves all that the check asks for."""
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
    assert "probe failed (status 1)" in errors[0].message
    assert peers.load_peers() == {}


def test_one_that_fails_leaves_the_others(folder):
    build_all(fake("one"))
    told, errors = build_all(fake("one", build_that_fails), fake("two"))
    assert told == [("one", False), ("two", True)]
    assert list(peers.load_peers()) == ["two"]
    build_all(fake("one"))
    assert list(peers.load_peers()) == ["one", "two"]
    message = errors[0].message
    assert message.startswith("one: sh failed (status 3)")
    assert str(folder / "one/build.log") in message
    assert message.splitlines()[1:] == [str(number) for number in range(101 - TAIL, 101)]


def test_a_library_that_does_not_serve_is_no_peer(folder, compiled, tmp_path):
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    empty = compiled(source, shared=True)
    _, errors = build_all(fake("one", lambda steps, source, work: empty))
    assert "does not serve malloc" in errors[0].message
    assert peers.load_peers() == {}


def test_commands_that_are_missing_are_named_with_their_packages(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    _, errors = build_all(fake("one"))
    assert errors[0].message == "one needs cc: apt-get install gcc libc6-dev"


@pytest.mark.parametrize("script, message", [
    (None, "cargo, which fetches the sources, is not there; install it with apt-get install cargo-web"),
    ("echo cargo 1.65.0", "cargo 1.65.0 is too old for the crates, which need 1.87; install it with"),
    ("echo broken >&2; exit 1", "cargo --version fails: broken"),
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
    assert errors[0].message == "two is Debian's hakmem-no-such-package: apt-get install hakmem-no-such-package"


def test_a_folder_that_cannot_be_preloaded_from_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HAKMEM_PEERS_DIR", str(tmp_path / "a folder"))
    with pytest.raises(PeersError, match="LD_PRELOAD cannot name a path with a space or a colon"):
        build_all(fake("one"))


def test_a_step_does_not_see_the_shell_s_flags(monkeypatch, tmp_path):
    monkeypatch.setenv("CFLAGS", "-march=native")
    monkeypatch.setenv("LD_PRELOAD", "")
    said = Steps("x", tmp_path / "log").run("env", setting={"OWN": "1"})
    assert "CFLAGS" not in said and "LD_PRELOAD" not in said and "OWN=1" in said


def test_a_step_whose_command_is_missing_is_named(tmp_path):
    with pytest.raises(PeersError, match="x: hakmem-no-such-command: No such file"):
        Steps("x", tmp_path / "log").run("hakmem-no-such-command")
