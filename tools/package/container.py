"""hakmem-VERSION-oci.tar: a container image of only the libraries, for amd64 and arm64. buildah builds it from
packaging/container/Containerfile.

In the image: /hakmem/libhakmem.so for glibc, /hakmem/musl/libhakmem.so for musl, /hakmem/LICENSE."""

import tempfile
import time
from pathlib import Path

import archive
import libraries_tree
from plan import Plan
from staging import install, set_times

# {the image's name of a processor: ours}
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# Where the libraries of each kind are in the image's folder.
PLACES = {"gnu": ".", "musl": "musl"}


def notes_of(plan: Plan) -> dict[str, str]:
    """Returns the image's annotations."""
    return {
        "org.opencontainers.image.title": "hakmem",
        "org.opencontainers.image.description": "The memory allocator HAKMEM as libraries to copy into other images",
        "org.opencontainers.image.version": plan.version,
        "org.opencontainers.image.licenses": "MIT",
        "org.opencontainers.image.created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(plan.epoch)),
    }


def make_context(plan: Plan, folder: Path) -> None:
    """Fills the folder with the image's files."""
    for architecture, processor in ARCHITECTURES.items():
        for libc, place in PLACES.items():
            target = f"{processor}-linux-{libc}"
            for name, source in libraries_tree.shared(plan, target).items():
                libraries_tree.install_shared(plan, target, source, folder / architecture / place / name)
        install(plan.root / "LICENSE", folder / architecture / "LICENSE")
    set_times(plan, folder)


def make(plan: Plan) -> None:
    """Makes the image."""
    notes = notes_of(plan)
    # buildah stores images and layers in folders of its own. Each build starts with empty ones.
    with tempfile.TemporaryDirectory(prefix="hakmem-image-") as name:
        folder = Path(name)
        make_context(plan, folder / "context")
        buildah = ["buildah", "--root", folder / "root", "--runroot", folder / "run", "--storage-driver", "vfs"]
        # One at a time: the index lists them in the order in which they finish.
        for architecture in ARCHITECTURES:
            plan.run(*buildah, "build", "--isolation", "chroot", "--platform", f"linux/{architecture}",
                     "--timestamp", plan.epoch, "--manifest", "hakmem", "--identity-label=false",
                     # Registries show annotations, `docker inspect` shows labels.
                     *(word for key, value in notes.items() for kind in ("--annotation", "--label")
                       for word in (kind, f"{key}={value}")),
                     "-f", plan.root / "packaging/container/Containerfile", folder / "context")
        layout = folder / "layout"
        plan.run(*buildah, "manifest", "push", "--quiet", "--all", "hakmem", f"oci:{layout}:hakmem:{plan.version}")
        archive.write_tar(plan.dist / f"hakmem-{plan.version}-oci.tar", layout, plan.epoch)
