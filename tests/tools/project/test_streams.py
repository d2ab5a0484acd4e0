"""Protects what commands write: whole files, devices that stay devices, and a line where output is closed or full."""

import errno
import os
import shlex
import stat
import subprocess
import sys
import threading

import pytest

import blackbox
from hakmem import writing

def run(command, redirection="", **variables):
    """Runs a command of the tools through a shell."""
    line = f"{shlex.join([sys.executable, '-m', 'hakmem', *command.split()])} {redirection}"
    return blackbox.run(["bash", "-c", line], env={"PYTHONPATH": str(blackbox.REPOSITORY / "python"),
                                                     "PYTHONDONTWRITEBYTECODE": "1", **variables})


@pytest.mark.parametrize("command, unbuffered", [("--help", ""), ("ps", "1")])
def test_a_full_device_is_an_error_in_one_line(command, unbuffered):
    result = run(command, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert result.status == 1, result.report()
    assert os.strerror(errno.ENOSPC) in result.stderr.splitlines()[-1], result.report()
    assert "Traceback" not in result.stderr and "Exception" not in result.stderr, result.report()


@pytest.mark.parametrize("command, redirection", [("bench --list", ">&-"), ("ps", "<&- >&- 2>&-")])
def test_closed_streams_are_no_error(command, redirection):
    """No file that the command opens gets a standard stream's number, either."""
    result = run(command, redirection)
    assert (result.status, "Traceback" in result.stderr) == (0, False), result.report()


def test_characters_that_an_encoding_lacks():
    result = run("bench --list", PYTHONIOENCODING="ascii")
    assert result.status == 0, result.report()
    code = "from hakmem import streams; streams.prepare(); print('\u2588', flush=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True,
                          env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.stdout == b"?\n"


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with open(path, "rb") as reader:
        writing.write_whole(path, b"new content")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new content" and os.listdir(tmp_path) == ["file"]


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        writing.write_whole(path, None)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    writing.write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"


def test_a_pipe_stays_a_pipe(tmp_path):
    """What holds of a pipe holds of /dev/null, which root could otherwise replace."""
    path, got = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    writing.write_whole(path, b"through")
    reader.join()
    assert stat.S_ISFIFO(path.stat().st_mode) and got == [b"through"]


def test_the_standard_output_is_a_target():
    """/dev/stdout is a link to what has no name of its own: a pipe here."""
    code = "from hakmem import writing; writing.write_whole('/dev/stdout', b'through')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True,
                          env={**os.environ, "PYTHONPATH": str(blackbox.REPOSITORY / "python")})
    assert done.stdout == b"through"
