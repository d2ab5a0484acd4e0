"""Protects the command line of `hakmem peers`, with one peer in the folder: HAKMEM under another name."""

import ctypes.util
import os
import shutil
import subprocess
import sys

import click.testing
import pytest

import blackbox
from hakmem import peers
from hakmem.peers import command as peers_command


@pytest.fixture
def folder(tmp_path, library):
    peer = peers.Peer("tcmalloc", library, "2025-06-16", "crates.io x 1", peers.digest_of(library), "MIT",
                      {"PEER_SETTING": "its own"})
    peers.write_manifest({"tcmalloc": peer}, tmp_path)
    return tmp_path


def hakmem_peers(folder, *arguments, **more):
    env = {**os.environ, "HAKMEM_PEERS_DIR": str(folder), **more}
    command = [sys.executable, "-m", "hakmem", "peers", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=blackbox.HANG)


def test_list_tells_of_every_peer(folder, library):
    said = hakmem_peers(folder, "list")
    assert said.returncode == 0, said.stderr
    rows = {line.split()[0]: line for line in said.stdout.splitlines()}
    assert rows["tcmalloc"].split()[1] == "2025-06-16" and rows["tcmalloc"].rstrip().endswith(str(library))
    assert "BSD-2-Clause" in rows["jemalloc"] and "/" not in rows["jemalloc"], "it has no library"


def test_path_prints_the_library(folder, library):
    said = hakmem_peers(folder, "path", "tcmalloc")
    assert (said.returncode, said.stdout) == (0, f"{library}\n")


def test_run_preloads_the_library_and_sets_what_the_peer_asks_for(folder, library):
    said = hakmem_peers(folder, "run", "tcmalloc", "--", "sh", "-c", 'echo "$LD_PRELOAD $PEER_SETTING"; exit 5')
    assert (said.returncode, said.stdout) == (5, f"{library} its own\n")


def test_run_leaves_the_user_s_own_variables(folder, library):
    said = hakmem_peers(folder, "run", "tcmalloc", "printenv", "LD_PRELOAD", "PEER_SETTING",
                        PEER_SETTING="mine", LD_PRELOAD="libm.so.6")
    assert said.stdout == f"{library}:libm.so.6\nmine\n"


@pytest.mark.parametrize("arguments, status, message", [
    (["path", "nonesuch"], 2, "nonesuch"),
    (["path", "tbb"], 1, "./hakmem peers build tbb"),
    (["run", "tcmalloc", "--"], 2, "run"),
    (["run", "tcmalloc", "--", "hakmem-no-such-program"], 127, "'hakmem-no-such-program'"),
])
def test_what_cannot_be_is_refused(folder, arguments, status, message):
    said = hakmem_peers(folder, *arguments)
    assert said.returncode == status
    assert message in said.stderr


@pytest.mark.parametrize("arguments", [["list"], ["build", "tbb"]])
def test_without_a_checkout_it_is_said_where_peers_are_built(monkeypatch, tmp_path, arguments):
    monkeypatch.setattr(peers_command, "HERE", tmp_path / "nowhere")
    done = click.testing.CliRunner().invoke(peers_command.peers, arguments)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit) and done.output


@pytest.mark.skipif(not ctypes.util.find_library("tcmalloc_minimal"),
                    reason="needs gperftools (libtcmalloc-minimal4)")
def test_the_script_asks_for_no_more_than_is_lacking(folder):
    """./hakmem installs a packaged peer on a machine with a compiler and no other build tool."""
    only = folder / "bin"
    only.mkdir()
    for name in ("bash", "env", "dirname", "readlink", "nproc", "id", "cksum", "cut", "mkdir", "sed", "cmp",
                 "dpkg-query", "cc", "gcc", "as", "ld", "sh", "grep"):
        (only / name).symlink_to(shutil.which(name))
    script = [blackbox.REPOSITORY / "hakmem", "peers", "build"]
    env = {**os.environ, "HAKMEM_PEERS_DIR": str(folder), "PATH": str(only)}
    said = subprocess.run([*script, "gperftools"], env=env, capture_output=True, text=True, check=False,
                          timeout=blackbox.HANG)
    assert said.returncode == 0 and str(folder) in said.stdout, said.stderr
    said = subprocess.run([*script, "rpmalloc", "--packages"], env=env, capture_output=True, text=True, check=False,
                          timeout=blackbox.HANG)
    assert said.returncode == 0 and set(said.stdout.split()) == {"cmake", "ninja-build", "cargo-web"}, said.stderr
