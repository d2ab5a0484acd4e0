"""Protects files in the documents whose commands cannot run here: the programs that use them accept them."""

import json
import re

import blackbox
import documents


def files(name: str) -> dict[str, str]:
    return {block.file: block.text for block in documents.read(name).blocks if block.file}


def good(result: blackbox.Result) -> str:
    assert result.status == 0, result.report()
    return result.stdout


def test_systemd_takes_the_drop_in(tmp_path):
    text = files("docs/start/systemd.md")["hakmem.conf"]
    (tmp_path / "one.service").write_text("[Service]\nExecStart=/bin/true\n")
    folder = tmp_path / "one.service.d"
    folder.mkdir()
    (folder / "hakmem.conf").write_text(text)
    result = blackbox.run(["systemd-analyze", "verify", "--man=no", tmp_path / "one.service"])
    assert good(result) == "" and str(tmp_path) not in result.stderr, result.report()
    settings = dict(re.findall(r"^Environment=(\w+)=(.+)$", text, re.M))
    assert settings.pop("LD_PRELOAD") == "/usr/lib/hakmem/libhakmem.so"
    assert settings and set(settings) <= documents.options()


def test_systemd_refuses_another(tmp_path):
    """Shows that the test above can fail."""
    (tmp_path / "one.service").write_text("[Service]\nExecStart=/bin/true\nEnviroment=A=1\n")
    assert "Enviroment" in blackbox.run(["systemd-analyze", "verify", "--man=no", tmp_path / "one.service"]).stderr


def test_the_deployment_is_yaml_and_sets_options():
    text = files("docs/start/containers.md")["deployment.yaml"]
    deployment = json.loads(good(blackbox.run(
        ["ruby", "-ryaml", "-rjson", "-e", "puts JSON.generate(YAML.safe_load(STDIN.read))"], stdin=text)))
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    template = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    settings = {setting["name"]: setting["value"] for setting in container["env"]}
    assert settings and set(settings) <= documents.options()


def test_the_image_preloads_what_it_unpacks(tmp_path):
    """ADD unpacks an archive like tar. The lines after it run in a folder that stands for the image."""
    text = files("docs/start/containers.md")["Containerfile"]
    archive, folder = re.search(r"^ADD (\S+)\.tar\.gz (/\S+)$", text, re.M).groups()
    library = tmp_path / folder.strip("/") / archive.replace("*", "1.2.3") / "lib/libhakmem.so"
    for path in library, tmp_path / "usr/lib/any":
        path.parent.mkdir(parents=True)
        path.touch()
    line = re.search(r"^RUN (ln .*)$", text, re.M)[1].replace(" /", f" {tmp_path}/")
    good(blackbox.run(["sh", "-c", line]))
    preloaded = re.search(r"^ENV LD_PRELOAD=/(\S+)$", text, re.M)[1]
    assert (tmp_path / preloaded).resolve() == library


# The first code of each row in README.md's table of installations, and the test that installs it.
INSTALLED = {
    "apt install ./libhakmem0_*_amd64.deb ./hakmem_*_amd64.deb": "tests/delivery/package installs these files",
    "dnf install ./libhakmem0-*.x86_64.rpm ./hakmem-*.x86_64.rpm": "tests/delivery/package, by rpm: Debian has no dnf",
    "pip install ./hakmem-*-manylinux*_x86_64.whl": "tests/delivery/package and tests/delivery/wheel install a wheel",
    "cargo add --path /path/to/hakmem/rust/hakmem": "docs/start/rust.md has the same line, which is run",
    "apt install ./libhakmem0_*_amd64.deb ./libhakmem-dev_*_amd64.deb": "tests/delivery/package installs these files",
    "ADD hakmem-*-x86_64-linux-gnu.tar.gz /opt/": "is a line of a Containerfile, above",
    "./hakmem run -- PROGRAM": "the same page's first command, which is run",
}


def test_every_way_to_install_is_known():
    text = documents.read("README.md").text
    section = text[text.index("## Install"):text.index("## The two commands")]
    rows = re.findall(r"^\| [^|`]+ \| [^`|]*`([^`]+)`", section, re.M)
    assert rows == list(INSTALLED)
    assert "cargo add --quiet --path /path/to/hakmem/rust/hakmem" in documents.read("docs/start/rust.md").text


# ---- What is published ----

BARE = re.compile(r"\b(?:pip|apt|apt-get|dnf) install (?:-y |--quiet )*hakmem\b(?!\[)|\bcargo add (?:--quiet "
                  r")?hakmem\b|https://crates\.io/crates/hakmem")


def test_no_document_reads_as_if_a_registry_had_hakmem():
    """A line that works only after publication is in a paragraph that says so."""
    paths = [*blackbox.REPOSITORY.glob("docs/**/*.md"), *(blackbox.REPOSITORY / name for name in (
        "README.md", "python/README.md", "rust/hakmem/README.md", "rust/hakmem-sys/README.md", "go/README.md"))]
    paragraphs = [(path.name, text) for path in paths if path.exists() for text in path.read_text().split("\n\n")
                  if BARE.search(text)]
    assert {name for name, _ in paragraphs} >= {"README.md", "python.md"}
    assert [paragraph for paragraph in paragraphs if "Once published" not in paragraph[1]] == []


def test_pictures_show_this_version():
    """tools/make_pictures.py makes them again."""
    version = re.search(r'HAK_VERSION_STRING "(.*)"', (blackbox.INCLUDE_FOLDER / "hakmem/hakmem.h").read_text())[1]
    pictures = [path.read_text().replace("&#160;", " ") for path in (blackbox.REPOSITORY / "docs/images").glob("*.svg")]
    shown = [number for text in pictures for number in re.findall(r"HAKMEM (\d+\.\d+\.\d+)\b", text)]
    assert len(shown) >= 4 and set(shown) == {version}
