"""Protects the manifest of peers: it is read as written, and a library that changed is an error with advice."""

import json

import pytest

from hakmem import peers


@pytest.fixture
def peer(tmp_path):
    library = tmp_path / "libone.so"
    library.write_bytes(b"a library")
    return peers.Peer("one", library, "1.2", "crates.io one-sys 0.1", peers.digest_of(library), "MIT", {"A": "b"},
                      ("malloc",))


def test_what_is_written_is_read(tmp_path, peer):
    peers.write_manifest({"one": peer}, tmp_path)
    assert peers.load_peers(tmp_path) == {"one": peer}


def test_the_manifest_is_as_others_read_it(tmp_path, peer):
    peers.write_manifest({"one": peer}, tmp_path)
    manifest = json.loads((tmp_path / "peers.json").read_text())
    assert manifest["format"] == "hakmem-peers 1"
    assert manifest["peers"]["one"] == {
        "library": str(peer.library), "version": "1.2", "source": "crates.io one-sys 0.1", "sha256": peer.sha256,
        "license": "MIT", "setting": {"A": "b"}, "serves": ["malloc"]}


def test_nothing_built_is_no_peers(tmp_path):
    assert peers.load_peers(tmp_path) == {}


def test_the_folder_is_the_variable_s(tmp_path, peer, monkeypatch):
    peers.write_manifest({"one": peer}, tmp_path)
    monkeypatch.setenv("HAKMEM_PEERS_DIR", str(tmp_path))
    assert list(peers.load_peers()) == ["one"]


@pytest.mark.parametrize("change", [
    lambda library: library.unlink(), lambda library: library.write_bytes(b"another")])
def test_a_library_that_is_not_what_was_built(tmp_path, peer, change):
    peers.write_manifest({"one": peer}, tmp_path)
    change(peer.library)
    with pytest.raises(peers.PeersError, match=f"{peer.library}.*hakmem peers build one"):
        peers.load_peers(tmp_path)


@pytest.mark.parametrize("text", [
    "{", "[]", '{"format": "hakmem-peers 1"}', '{"format": "hakmem-peers 1", "peers": {"one": {"library": "x"}}}',
    '{"format": "hakmem-peers 99", "peers": {}}'])
def test_a_manifest_that_cannot_be_read(tmp_path, text):
    (tmp_path / "peers.json").write_text(text)
    with pytest.raises(peers.PeersError, match="peers.json"):
        peers.load_peers(tmp_path)
