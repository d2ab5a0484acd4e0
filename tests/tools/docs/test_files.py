"""Protects files in the documents whose commands cannot run here: the programs that use them accept them."""

import re

import yaml

import blackbox
import documents


def files(name: str) -> dict[str, str]:
    return {block.marks["file"]: block.text for block in documents.read(name).blocks if "file" in block.marks}


def good(result: blackbox.Result) -> str:
    assert result.status == 0, result.report()
    return result.stdout


def test_systemd_takes_the_drop_in(tmp_path):
    text = files("docs/services.md")["hakmem.conf"]
    service, folder = tmp_path / "one.service", tmp_path / "one.service.d"
    service.write_text("[Service]\nExecStart=/bin/true\n")
    folder.mkdir()
    (folder / "hakmem.conf").write_text(text)
    result = blackbox.run(["systemd-analyze", "verify", "--man=no", service])
    assert good(result) == "" and str(tmp_path) not in result.stderr, result.report()
    settings = dict(re.findall(r"^Environment=(\w+)=(.+)$", text, re.M))
    assert settings.pop("LD_PRELOAD") == "/usr/lib/hakmem/libhakmem.so"
    assert settings and set(settings) <= documents.options()


def test_the_deployment_is_yaml_and_sets_options():
    text = files("docs/services.md")["deployment.yaml"]
    deployment = yaml.safe_load(text)
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    template = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    settings = {setting["name"]: setting["value"] for setting in container["env"]}
    assert settings and set(settings) <= documents.options()


def test_the_image_preloads_what_it_unpacks(tmp_path):
    """ADD unpacks an archive like tar. The lines after it run in a folder that stands for the image."""
    text = files("docs/services.md")["Containerfile"]
    archive, folder = re.search(r"^ADD (\S+)\.tar\.gz (/\S+)$", text, re.M).groups()
    library = tmp_path / folder.strip("/") / archive.replace("*", "1.2.3") / "lib/libhakmem.so"
    for path in library, tmp_path / "usr/lib/any":
        path.parent.mkdir(parents=True)
        path.touch()
    line = re.search(r"^RUN (ln .*)$", text, re.M)[1].replace(" /", f" {tmp_path}/")
    good(blackbox.run(["sh", "-c", line]))
    preloaded = re.search(r"^ENV LD_PRELOAD=/(\S+)$", text, re.M)[1]
    assert (tmp_path / preloaded).resolve() == library


def test_pictures_show_this_version():
    """tools/make_pictures.py makes them again."""
    version = re.search(r'HAK_VERSION_STRING "(.*)"', (blackbox.INCLUDE_FOLDER / "hakmem/hakmem.h").read_text())[1]
    pictures = [path.read_text().replace("&#160;", " ") for path in (blackbox.REPOSITORY / "docs/images").glob("*.svg")]
    shown = [number for text in pictures for number in re.findall(r"HAKMEM (\d+\.\d+\.\d+)\b", text)]
    assert len(shown) >= 4 and set(shown) == {version}
