"""Protects hakmem bench report: the files that it writes, and its messages about files that are no results."""

import json
import os
import struct
import xml.etree.ElementTree

import click.testing
import pytest
import synthetic
from test_report_page import pixels

from hakmem.report.command import report
from hakmem.report.pictures import write_pictures

PICTURES = ["time", "memory", "both", "time-drivers", "time-programs", "peak-rss-drivers", "peak-rss-programs"]


def run(*arguments):
    return click.testing.CliRunner().invoke(report, [str(argument) for argument in arguments])


def test_the_page_stands_beside_the_result(tmp_path):
    """And pictures where the user wants them, without a page."""
    path = tmp_path / "2026-11-21-small.json"
    path.write_text(json.dumps(synthetic.small()))
    done = run(path, "--pictures", tmp_path / "new/folder")
    assert done.exit_code == 0, done.output
    assert done.output.split() == [str(tmp_path / f"new/folder/2026-11-21-small-{name}{suffix}")
                                   for name in PICTURES for suffix in (".svg", ".png")]
    assert not path.with_suffix(".html").exists()
    done = run(path)
    assert (done.exit_code, done.output) == (0, f"{path.with_suffix('.html')}\n")
    text = path.with_suffix(".html").read_text()
    assert text.startswith("<!DOCTYPE html>") and "2026-11-21-small.json.gz" in text


def test_pictures_show_something(result, tmp_path):
    paths = write_pictures(result, tmp_path, "full")
    assert [path.name for path in paths] == [f"full-{name}{suffix}" for name in PICTURES for suffix in (".svg", ".png")]
    for svg, png in zip(paths[::2], paths[1::2], strict=True):
        width, height, data = pixels(png.read_bytes())
        root = xml.etree.ElementTree.parse(svg).getroot()
        assert (width, height) == (round(2 * float(root.get("width"))), round(2 * float(root.get("height"))))
        assert 1500 <= width <= 1560 and height >= 500, png.name
        assert len(set(data)) > 50, f"{png.name} is blank"
        text = "".join(root.itertext())
        assert "mimalloc3" in text and "hakmem" in text
        assert "http" not in svg.read_text().replace("http://www.w3.org/", "")


def change(path, value):
    """A small result in which the part at the path is replaced or removed."""
    content = synthetic.small()
    part = content
    for key in path[:-1]:
        part = part[key]
    if value is None:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return content


@pytest.mark.parametrize("content, place", [
    ("", "not JSON"),
    ("[" * 100000, "not JSON"),
    ('{"format": NaN}', "not JSON"),
    ("[]", "array"),
    ("{}", "format"),
    ('{"format": "hakmem-bench 3"}', "format: 'hakmem-bench 3'"),
    (change(["summary"], None), "summary"),
    (change(["samples", 3, "row"], None), "samples[3].row"),
    (change(["samples", 3, "status"], "fine"), "samples[3].status"),
    (change(["samples"], {}), "samples"),
    (change(["rows"], {}), "rows"),
    (change(["summary", "rows", "python-json", "other", "ratios", "time", "low"], 0),
     "summary.rows.python-json.other.ratios.time.low"),
    (change(["summary", "rows", "python-json", "other", "time_s"], "1"), "summary.rows.python-json.other.time_s"),
    (change(["subject"], "nobody"), "subject: allocator 'nobody'"),
    (change(["samples", 0, "row"], "nowhere"), "samples[0]: row 'nowhere'"),
    (change(["summary", "overall", "ghost"], {}), "summary.overall: allocator 'ghost'"),
])
def test_what_is_no_result_is_refused(tmp_path, content, place):
    path = tmp_path / "bad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    done = run(path)
    assert done.exit_code == 1
    assert f"{path}: " in done.output and place in done.output and "Traceback" not in done.output
    assert isinstance(done.exception, SystemExit)
    assert os.listdir(tmp_path) == ["bad.json"]


def test_files_that_cannot_be_read_or_written(tmp_path):
    (tmp_path / "bytes.json").write_bytes(struct.pack(">I", 0xFF00FF00))
    (tmp_path / "r.json").write_text(json.dumps(synthetic.small()))
    for words, path in ((["none.json"], "none.json"), (["bytes.json"], "bytes.json"),
                        (["r.json", "--html", tmp_path / "no/such/folder.html"], "no/such/folder.html")):
        done = run(tmp_path / words[0], *words[1:])
        assert done.exit_code == 1 and f"{tmp_path}/{path}: " in done.output, done.output
        assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_a_file_without_an_end_is_refused(device):
    done = run(device)
    assert done.exit_code == 1 and device in done.output and "256 MiB" in done.output
