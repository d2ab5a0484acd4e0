"""What the tests of packages share: artifacts, made once, and temporary machines to install them on."""

import os
import subprocess
import sys
from pathlib import Path

import blackbox
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/package"))

import cached  # noqa: E402

# A folder of finished artifacts to test in place of new ones, before a release.
FINISHED = os.environ.get("HAKMEM_DIST")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """made(GROUP): a plan whose folders have the group's artifacts (cached.py)."""
    base, got = tmp_path_factory.mktemp("artifacts"), set()

    def get(name):
        if name not in got:
            cached.get(ROOT, name, base)
            got.add(name)
        return cached.plan_in(ROOT, base)

    return get


@pytest.fixture(scope="session")
def dist_of(made):
    """dist_of(GROUP): the folder with what users get of the group."""
    return lambda name: Path(FINISHED).resolve() if FINISHED else made(name).dist


@pytest.fixture(scope="session")
def system_dist(dist_of):
    return dist_of("system")


class Machine:
    """This machine under a temporary layer that takes all writes: a mount namespace with an overlay over /. Packages
    are installed, used and removed there as on any machine. /tmp/packages is the folder of packages, /tmp/checkout has
    the sources."""

    SET_UP = """
        set -e
        mount -t tmpfs none "$1"
        mkdir "$1/written" "$1/work" "$1/root"
        mount -t overlay overlay -o "lowerdir=/,upperdir=$1/written,workdir=$1/work" "$1/root"
        for folder in /proc /dev; do mount --rbind "$folder" "$1/root$folder"; done
        mount -t tmpfs none "$1/root/tmp"
        mkdir "$1/root/tmp/packages"
        mkdir "$1/root/tmp/checkout"
        mount --bind "$3" "$1/root/tmp/checkout"
        # dpkg's own files are copied: an overlay over files that change beneath it (apt, outside) fails.
        cp -a /var/lib/dpkg "$1/dpkg"
        mount --bind "$1/dpkg" "$1/root/var/lib/dpkg"
        # The index of all manual pages is not what is tested, and takes seconds to make anew.
        rm -f "$1/root/var/lib/man-db/auto-update"
        mount --bind "$2" "$1/root/tmp/packages"
        echo ready
        exec cat
    """

    def __init__(self, folder: Path, packages: Path):
        # A user that is not root becomes root of a user namespace.
        users = [] if os.geteuid() == 0 else ["--map-root-user"]
        self.holder = subprocess.Popen(
            ["unshare", *users, "--mount", "--propagation", "private", "sh", "-c", self.SET_UP, "sh", folder, packages,
             ROOT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self.holder.stdout.readline()
        if said != "ready\n":
            self.holder.kill()
            raise RuntimeError(f"no overlay over / could be mounted: {said}{self.holder.stdout.read()}")
        users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        self.prefix = ["nsenter", "--target", str(self.holder.pid), "--mount", *users, "chroot", str(folder / "root")]

    def words(self, *argv: str) -> list[str]:
        return [*self.prefix, "env", "-i", "HOME=/tmp", "LC_ALL=C.UTF-8", "TERM=dumb",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *argv]

    def run(self, *argv: str, status: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run(self.words(*map(str, argv)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=blackbox.HANG)
        assert done.returncode == status, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def shell(self, script: str) -> str:
        return self.run("sh", "-ec", script).stdout

    def close(self) -> None:
        self.holder.stdin.close()
        self.holder.wait(timeout=blackbox.HANG)
        self.holder.stdout.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory, system_dist):
    made = Machine(tmp_path_factory.mktemp("machine"), system_dist)
    yield made
    made.close()
