"""Protects the container image: its index and layers, and another image that copies from it."""

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from elftools.elf.elffile import ELFFile

import blackbox

ROOT = Path(__file__).resolve().parents[3]
VERSION = re.search(r'HAK_VERSION_STRING "(.*)"', (ROOT / "include/hakmem/hakmem.h").read_text())[1]
MACHINES = {"amd64": "EM_X86_64", "arm64": "EM_AARCH64"}


@pytest.fixture(scope="module")
def archive(dist_of):
    return dist_of("container") / f"hakmem-{VERSION}-oci.tar"


@pytest.fixture(scope="module")
def blobs(archive):
    """{name: bytes} of all files in the archive."""
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def read(blobs: dict[str, bytes], entry: dict) -> bytes:
    data = blobs[f"blobs/{entry['digest'].replace(':', '/')}"]
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == entry["digest"] and len(data) == entry["size"]
    return data


@pytest.fixture(scope="module")
def images(blobs):
    """{architecture: manifest} from the archive's only index."""
    assert json.loads(blobs["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (top,) = json.loads(blobs["index.json"])["manifests"]
    assert top["annotations"]["org.opencontainers.image.ref.name"] == f"hakmem:{VERSION}"
    entries = json.loads(read(blobs, top))["manifests"]
    assert {entry["platform"]["os"] for entry in entries} == {"linux"}
    return {entry["platform"]["architecture"]: json.loads(read(blobs, entry)) for entry in entries}


def test_platforms_and_annotations(blobs, images):
    assert list(images) == ["amd64", "arm64"]
    for architecture, manifest in images.items():
        assert manifest["annotations"]["org.opencontainers.image.version"] == VERSION
        assert manifest["annotations"]["org.opencontainers.image.licenses"] == "MIT"
        settings = json.loads(read(blobs, manifest["config"]))
        assert settings["architecture"] == architecture
        assert settings["config"]["Labels"] == {name: text for name, text in manifest["annotations"].items()
                                                if not name.startswith("org.opencontainers.image.base.")}


@pytest.mark.parametrize("architecture", MACHINES)
def test_the_layer_is_the_libraries(blobs, images, architecture):
    (layer,) = images[architecture]["layers"]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(read(blobs, layer)))) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
        assert {(member.uid, member.gid) for member in tar} == {(0, 0)}
    assert {"hakmem/libhakmem.so", "hakmem/musl/libhakmem.so", "hakmem/LICENSE"} <= set(files)
    assert all(re.fullmatch(r"hakmem/(musl/)?libhakmem[a-z-]*\.so|hakmem/LICENSE", name) for name in files), set(files)
    for name, data in files.items():
        if name.endswith(".so"):
            elf = ELFFile(io.BytesIO(data))
            assert elf["e_machine"] == MACHINES[architecture]
            needs = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
            assert ("libc.so.6" in needs) == ("musl" not in name), needs


@pytest.mark.parametrize("architecture", MACHINES)
def test_another_image_copies_from_it(archive, tmp_path, architecture):
    """As in a user's Containerfile: one name gives the library for the platform that is built."""

    def buildah(*words) -> str:
        storage = ["--root", tmp_path / "root", "--runroot", tmp_path / "run", "--storage-driver", "vfs"]
        done = subprocess.run(["buildah", *storage, *words], capture_output=True, text=True, check=False,
                              timeout=blackbox.HANG)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    platform = f"linux/{architecture}"
    buildah("pull", "--quiet", "--platform", platform, f"oci-archive:{archive}")
    (tmp_path / "Containerfile").write_text(
        f"FROM scratch\nCOPY --from=localhost/hakmem:{VERSION} /hakmem/libhakmem.so /usr/lib/hakmem/libhakmem.so\n"
        f"ENV LD_PRELOAD=/usr/lib/hakmem/libhakmem.so\n")
    image = buildah("build", "--quiet", "--isolation", "chroot", "--platform", platform, "--pull=never", tmp_path)
    folder = Path(buildah("mount", buildah("from", "--pull=never", image)))
    with open(folder / "usr/lib/hakmem/libhakmem.so", "rb") as raw:
        assert ELFFile(raw)["e_machine"] == MACHINES[architecture]
