"""Protects the errors for files that are no profiles, and for requests beyond a profile: exit status, file, option."""

import gzip
import os
import stat

from making import Making, known, named, run

GZIP = b"\x1f\x8b"


def refused(done, *words, status=1):
    """Checks the status, and that the message names these: a file, an option, a sample type."""
    assert done.exit_code == status and not done.stdout and isinstance(done.exception, SystemExit), done.output
    assert all(str(word) in done.stderr for word in words), (words, done.stderr)


def packed(change):
    making = known()
    change(making.profile)
    return gzip.compress(making.profile.SerializeToString())


WHOLE = gzip.compress(known().profile.SerializeToString())
NO_PROFILES = {
    "empty": b"", "half": WHOLE[:len(WHOLE) // 2], "without its end": WHOLE[:-3],
    "damaged": WHOLE[:30] + b"\xff" * 8 + WHOLE[38:], "packed nothing": gzip.compress(b""),
    "a text": b"not a profile at all\n", "the older format": b"heap profile: 1: 2 [3: 4] @ heapprofile\n",
    "a program": b"\x7fELF" + bytes(500), "without samples": Making().profile.SerializeToString(),
    "without types": packed(lambda profile: profile.ClearField("sample_type")),
    "a value is missing": packed(lambda profile: profile.sample[1].value.pop()),
    "a location is missing": packed(lambda profile: profile.sample[0].location_id.append(99)),
    "functions are missing": packed(lambda profile: profile.ClearField("function")),
    "a mapping is missing": packed(lambda profile: setattr(profile.location[0], "mapping_id", 9)),
    "a string is missing": packed(lambda profile: setattr(profile.function[0], "name", 999)),
    "drop_frames is none": packed(lambda profile: (profile.string_table.append("*"), setattr(
        profile, "drop_frames", len(profile.string_table) - 1)))}


def test_what_is_no_profile(tmp_path):
    """Each is an error that names the file. They are different errors."""
    said = set()
    for name, content in NO_PROFILES.items():
        path = tmp_path / "bad"
        path.write_bytes(content)
        done = run(path)
        refused(done, path)
        said.add(done.stderr)
    assert len(said) >= 10, said


def test_a_profile_without_samples_is_left_out_beside_others(tmp_path):
    """A short process writes one."""
    short = tmp_path / "short"
    short.write_bytes(NO_PROFILES["without samples"])
    path = known().write(tmp_path / "a")
    alone, beside = run(path), run(short, path)
    assert beside.exit_code == 0 and str(short) in beside.stderr
    assert beside.stdout == alone.stdout


def test_comments_of_one_profile_of_several_are_left_out(tmp_path):
    """The process, the moment of its peak, and its totals, which are told with their intervals."""
    totals = "in use: 5 bytes +-4; allocated: 9 bytes +-3"
    paths = []
    for number in range(2):
        making = known()
        for text in "the same of both", f"of process {number}", totals:
            making.profile.comment.append(making.text(text))
        paths.append(making.write(tmp_path / str(number)))
    both, one = run(*paths).stdout, run(paths[0]).stdout
    assert "the same of both" in both and "of process" not in both
    assert "the same of both" in one and "of process 0" in one
    assert "+-" not in both + one


def test_files_that_cannot_be_read_or_written(tmp_path):
    refused(run(tmp_path / "none"), tmp_path / "none", os.strerror(2))
    path = known().write(tmp_path / "a")
    refused(run(path, "--html", tmp_path / "no/page.html"), "no/page.html", os.strerror(2))
    refused(run(path, "--symbolized", tmp_path / "no/a"), "no/a", os.strerror(2))
    refused(run(path, "--debug-dir", tmp_path / "no"), "--debug-dir", tmp_path / "no", status=2)
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
    refused(run(path), "inuse_space", "samples, cpu")
    heap = known().write(tmp_path / "heap")
    refused(run(heap, path), path, "samples, cpu", heap)
    refused(run(heap, "--diff", path), "samples, cpu")


def test_options_that_are_wrong(tmp_path):
    one, other = known().write(tmp_path / "a"), known().write(tmp_path / "b")
    for option in ("--focus", "--ignore", "--hide"):
        refused(run(one, option, "(("), option, status=2)
    refused(run(one, "--focus", "nowhere"), "--focus")
    refused(run(one, other, "--symbolized", tmp_path / "c"), "--symbolized", status=2)
    refused(run(one, one), "FILE", status=2)
    refused(run(one, "--html", one), "--html", one, status=2)
    refused(run(one, "--html", other, "--diff", other), "--html", other, status=2)
    refused(run(one, "--tree", "--lifetimes"), "--tree", "--lifetimes", status=2)
    refused(run(), "FILE", status=2)
    # As from a shell's variable that is not set: `hakmem heap "$pid"`.
    for word in ("", " "):
        refused(run(word), "PID", status=2)
