"""Protects the errors for files that are no profiles, and for requests beyond a profile: one line, exit status 1."""

import gzip
import os
import stat

import pytest
from making import Making, known, named, run

GZIP = b"\x1f\x8b"


def refused(done, message, status=1):
    assert done.exit_code == status, done.output
    assert message in done.stderr and "Traceback" not in done.output
    assert isinstance(done.exception, SystemExit)


def packed(making, change):
    change(making.profile)
    return gzip.compress(making.profile.SerializeToString())


WHOLE = gzip.compress(known().profile.SerializeToString())


@pytest.mark.parametrize("content, message", [
    (b"", "is empty"),
    (WHOLE[:len(WHOLE) // 2], "is truncated"),
    (WHOLE[:-3], "is truncated"),
    (WHOLE[:30] + b"\xff" * 8 + WHOLE[38:], "its gzip data are damaged"),
    (gzip.compress(b""), "it has no table of strings"),
    (b"not a profile at all\n", "not a profile in pprof's format"),
    (b"heap profile: 1: 2 [3: 4] @ heapprofile\n", "not a profile in pprof's format"),
    (os.urandom(8).join([b"\x7fELF"] * 50), "not a profile in pprof's format"),
    (Making().profile.SerializeToString(), "the profile is empty: it holds no samples; they are 524288 bytes"),
    (packed(known(), lambda profile: profile.ClearField("sample_type")), "it has no sample types"),
    (packed(known(), lambda profile: profile.sample[1].value.pop()), "more or fewer values"),
    (packed(known(), lambda profile: profile.sample[0].location_id.append(99)), "a sample's location is missing"),
    (packed(known(), lambda profile: profile.ClearField("function")), "a line's function is missing"),
    (packed(known(), lambda profile: setattr(profile.location[0], "mapping_id", 9)), "a location's mapping is missing"),
    (packed(known(), lambda profile: setattr(profile.function[0], "name", 999)), "a string is not in its table"),
])
def test_what_is_no_profile(tmp_path, content, message):
    path = tmp_path / "bad"
    path.write_bytes(content)
    done = run(path)
    refused(done, message)
    assert str(path) in done.stderr


def test_files_that_cannot_be_read_or_written(tmp_path):
    refused(run(tmp_path / "none"), f"{tmp_path}/none: cannot be read: No such file or directory")
    path = known().write(tmp_path / "a")
    refused(run(path, "--html", tmp_path / "no/page.html"), "no/page.html: cannot be written: No such file")
    refused(run(path, "--symbolized", tmp_path / "no/a"), "no/a: cannot be written: No such file or directory")
    refused(run(path, "--debug-dir", tmp_path / "no"), "does not exist", status=2)
    assert os.listdir(tmp_path) == ["a"]


def test_special_files_and_links_stay(tmp_path):
    """A rename as root would replace a device such as /dev/null, and any rename a symbolic link."""
    profile = known().write(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("linked")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(profile, "--symbolized", tmp_path / "pipe").exit_code == 0
        assert os.read(reader, 2) == GZIP
    finally:
        os.close(reader)
    assert run(profile, "--symbolized", tmp_path / "link").exit_code == 0
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "linked").read_bytes().startswith(GZIP)
    assert sorted(os.listdir(tmp_path)) == ["a", "link", "linked", "pipe"]


def test_sample_types_that_are_not_there(tmp_path):
    path = Making((("samples", "count"), ("cpu", "nanoseconds"))).stack(named("a"), 1, 2).write(tmp_path / "cpu")
    refused(run(path), "no such sample type: inuse_space; the profile has samples, cpu")
    heap = known().write(tmp_path / "heap")
    refused(run(heap, path), f"{path}: its sample types (samples, cpu) are others than those of {heap}")
    refused(run(heap, "--diff", path), "the base's sample types (samples, cpu) are others than the profile's")


@pytest.mark.parametrize("option", ["--focus", "--ignore", "--hide"])
def test_expressions_that_are_none(tmp_path, option):
    refused(run(known().write(tmp_path / "a"), option, "(("), f"{option}: not a regular expression: ", status=2)


def test_nothing_left_to_show(tmp_path):
    refused(run(known().write(tmp_path / "a"), "--focus", "nowhere"), "no stack is left by --focus and --ignore")


def test_options_that_do_not_go_together(tmp_path):
    one, other = known().write(tmp_path / "a"), known().write(tmp_path / "b")
    refused(run(one, other, "--symbolized", tmp_path / "c"), "--symbolized takes one FILE", status=2)
    refused(run(one, one), "a FILE is given twice", status=2)
    refused(run(one, "--html", one), f"--html would overwrite {one}", status=2)
    refused(run(one, "--html", other, "--diff", other), f"--html would overwrite {other}", status=2)
    refused(run(one, "--tree", "--lifetimes"), "--tree and --lifetimes are shown one at a time", status=2)
    refused(run(), "Missing argument", status=2)


def test_drop_frames_that_is_no_expression(tmp_path):
    making = known()
    making.profile.drop_frames = making.text("*")
    refused(run(making.write(tmp_path / "a")), "drop_frames: not a regular expression")


def test_an_empty_word_is_no_source():
    """As from a shell's variable that is not set: `hakmem heap "$pid"`."""
    for word in ("", " "):
        refused(run(word), "a file, a PID, the name of a process or a URL is wanted", status=2)
