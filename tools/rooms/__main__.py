"""Runs a command in an empty Debian, to show what ./hakmem does on a fresh machine. Needs root and `debootstrap`.

  sudo python3 tools/rooms                                      ./hakmem test in an empty Debian 12
  sudo python3 tools/rooms --suite trixie --beside-load         the same in Debian 13, beside two busy loops
  sudo python3 tools/rooms --user --suite trixie                as a user without root; the tools are there
  sudo python3 tools/rooms --confined -- ./hakmem test -R unit  in a container without rights
  sudo python3 tools/rooms --blank                              the checkout's path holds a blank
  sudo python3 tools/rooms --packages dist -- sh tools/rooms/installed.sh        the packages in dist/
  sudo python3 tools/rooms -- sh -c 'git clone -q . ../b; (cd ../b; ./hakmem test) & ./hakmem test; wait $!'

A room is a new folder with debootstrap's minbase, git and ca-certificates, and a clone of the checkout's last commit:
in /root/hakmem (mode 0700), or in a user's home. It has mounts and processes of its own; the network, the mirror of
Debian packages, proxies, certificates and pip's settings are this machine's. --tools installs the tools of a build
beforehand, as --user does, who cannot. --confined takes capabilities and system calls away (confined.py).

Last, it prints one line: the room, the command's seconds, MB by which the system grew (without the user's home) and the
checkout's home grew, and what the command's closing line counted. It ends with the command's status. Nothing stays but
the trees in /var/cache/hakmem-rooms, which --fresh makes anew.
"""

import argparse
import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confined

CHECKOUT = Path(__file__).resolve().parent.parent.parent
CACHE = Path("/var/cache/hakmem-rooms")
SUITES = ("bookworm", "trixie")
INCLUDED = ("git", "ca-certificates")
TOOLS = ("cmake", "ninja-build", "gcc", "g++", "libc6-dev", "libcmocka-dev", "python3", "python3-venv")
USER = "stranger"
# Settings of this machine by which programs reach the network. A room has no others of its variables.
NETWORK = re.compile(r"(?i)^((https?|ftp|no)_proxy|pip_((extra_)?index_url|default_timeout|proxy|trusted_host))$")
APT = re.compile(r'^Acquire::(Check-Valid-Until|Check-Date|https?::Proxy) ".+";$', re.MULTILINE)
COUNTED = re.compile(r"^(?:hakmem: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", re.MULTILINE)
# As a container has them: the files of /dev, and what of /proc and /sys is read-only or hidden.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
READ_ONLY = ("proc/sys", "proc/sysrq-trigger", "proc/irq", "proc/bus")
HIDDEN = ("proc/kcore", "proc/keys", "proc/timer_list", "proc/sched_debug", "sys/firmware", "proc/acpi", "proc/scsi")
# What --packages takes of a folder and its subfolders.
PACKAGES = ("*_amd64.deb", "*_all.deb", "*-x86_64-linux-gnu.tar.gz", "*-manylinux*_x86_64.whl")
LOOP = "while :; do :; done"
LIBC = ctypes.CDLL(None, use_errno=True)
PIVOT_ROOT, MNT_DETACH = 155, 2  # x86-64


def call(*words: object, **more: Any) -> None:
    """Runs a program, which must succeed. Its output goes to stderr."""
    subprocess.run([str(word) for word in words], check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, **more)


def output_of(*words: object) -> str:
    """Returns what a program prints."""
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def variables(home: str, user: str) -> dict[str, str]:
    """Returns the environment in a room."""
    ours = {name: value for name, value in os.environ.items() if NETWORK.match(name)}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": home, "USER": user, "LANG": "C.UTF-8", **ours}


def mirror_of(suite: str) -> str:
    """Returns the address of the Debian archive that this machine uses, and with `-security` that of its updates."""
    uris = output_of("apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)").split("\n")
    for line in uris:
        site, _, name = line.partition(" ")
        if "/debian" in site and (name.endswith("-security") == suite.endswith("-security")):
            return site.rstrip("/")
    return "http://deb.debian.org/debian-security" if suite.endswith("-security") else "http://deb.debian.org/debian"


def copy_network(tree: Path) -> None:
    """Makes the network of this machine reachable from the tree."""
    for name in ("etc/resolv.conf", "etc/hosts", "etc/pip.conf"):
        if Path("/", name).exists():
            shutil.copyfile(Path("/", name), tree / name)
    certificates = sorted(Path("/usr/local/share/ca-certificates").glob("*.crt"))
    for file in certificates:
        shutil.copy(file, tree / "usr/local/share/ca-certificates")
    if certificates:
        call("chroot", tree, "update-ca-certificates", env=variables("/root", "root"))


def make_tree(suite: str, tools: bool, fresh: bool) -> Path:
    """Returns an archive of the suite's empty system, or of one with the tools of a build. Makes it if need be."""
    archive = CACHE / f"{suite}{'-tools' if tools else ''}.tar"
    if archive.exists() and not fresh:
        return archive
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        tree = Path(folder, "tree")
        if tools:
            empty = make_tree(suite, tools=False, fresh=False)
            call("tar", "-C", make_folder(tree), "-xpf", empty)
            call("chroot", tree, "apt-get", "-q", "update", env=variables("/root", "root"))
            call("chroot", tree, "apt-get", "-qy", "--no-install-recommends", "install", *TOOLS,
                 env={**variables("/root", "root"), "DEBIAN_FRONTEND": "noninteractive"})
        else:
            mirror = mirror_of(suite)
            call("debootstrap", "--variant=minbase", f"--include={','.join(INCLUDED)}", suite, tree, mirror)
            sources = [f"deb {mirror} {suite} main", f"deb {mirror} {suite}-updates main",
                       f"deb {mirror_of(f'{suite}-security')} {suite}-security main"]
            (tree / "etc/apt/sources.list").write_text("\n".join(sources) + "\n")
            settings = [found.group() for found in APT.finditer(output_of("apt-config", "dump"))]
            (tree / "etc/apt/apt.conf.d/90room").write_text("\n".join(settings) + "\n")
            copy_network(tree)
            call("chroot", tree, "useradd", "--create-home", "--shell", "/bin/bash", USER)
        call("chroot", tree, "apt-get", "clean")
        shutil.rmtree(tree / "var/lib/apt/lists")
        (tree / "var/lib/apt/lists/partial").mkdir(parents=True)
        call("tar", "-C", tree, "--one-file-system", "-cf", Path(folder, "tar"), ".")
        os.replace(Path(folder, "tar"), archive)
    return archive


def make_folder(path: Path) -> Path:
    """Returns a new folder."""
    path.mkdir(parents=True)
    return path


def size(path: Path, *left_out: Path) -> int:
    """Returns the MB of a folder."""
    words = [f"--exclude={each}" for each in left_out]
    return int(output_of("du", "-smx", *words, path).split()[0])


def mount_all(tree: Path, confine: bool) -> None:
    """Mounts in this process's own namespace what a system has. It goes with the namespace."""
    def mount(*words: object) -> None:
        call("mount", *words)

    mount("--bind", tree, tree)
    mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", tree / "proc")
    mount("-t", "sysfs", "-o", "nosuid,nodev,noexec", "sysfs", tree / "sys")
    mount("--rbind", "/sys/fs/cgroup", tree / "sys/fs/cgroup")
    mount("-t", "tmpfs", "-o", "mode=755,nosuid", "tmpfs", tree / "dev")
    for name in DEVICES:
        (tree / "dev" / name).touch()
        mount("--bind", f"/dev/{name}", tree / "dev" / name)
    for name in ("pts", "shm"):
        (tree / "dev" / name).mkdir()
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=666,mode=620,gid=5", "devpts", tree / "dev/pts")
    mount("-t", "tmpfs", "-o", "mode=1777,nosuid,nodev", "tmpfs", tree / "dev/shm")
    for name, goal in {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
                       "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}.items():
        (tree / "dev" / name).symlink_to(goal)
    if not confine:
        return
    for path in (tree / name for name in READ_ONLY if (tree / name).exists()):
        mount("--bind", path, path)
        mount("-o", "remount,bind,ro", path)
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for goal in [each for each in mounted if each.startswith(f"{tree}/sys")]:
        mount("-o", "remount,bind,ro", goal)
    for path in (tree / name for name in HIDDEN):
        if path.is_dir():
            mount("-t", "tmpfs", "-o", "ro", "tmpfs", path)
        elif path.exists():
            mount("--bind", tree / "dev/null", path)


def turn_root(tree: Path) -> None:
    """Makes the tree the root of this namespace. Under chroot alone, the kernel refuses user namespaces."""
    os.chdir(tree)
    if LIBC.syscall(PIVOT_ROOT, b".", b".") != 0 or LIBC.umount2(b".", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "pivot_root")
    os.chdir("/")


def enter(folder: str, user: str, confine: bool) -> None:
    """Turns this process into the user's, in the folder of the room."""
    who = next(line.split(":") for line in Path("/etc/passwd").read_text().split("\n") if line.startswith(f"{user}:"))
    os.chdir(folder)
    if confine:
        confined.enter()
    os.setgroups([])
    os.setgid(int(who[3]))
    os.setuid(int(who[2]))


def run_inside(tree: Path, given: argparse.Namespace) -> int:
    """The part that runs in namespaces of its own: mounts, loads the machine, runs the command. Returns its status."""
    mount_all(tree, given.confined)
    turn_root(tree)
    home = f"/home/{USER}" if given.user else "/root"
    user = USER if given.user else "root"
    for _ in range(2 * given.beside_load):
        subprocess.Popen(["sh", "-c", LOOP], stdin=subprocess.DEVNULL)
    return subprocess.run(given.command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False,
                          env=variables(home, user),
                          preexec_fn=lambda: enter(home + given.checkout, user, given.confined)).returncode


@contextlib.contextmanager
def new_tree(archive: Path) -> Iterator[Path]:
    """Yields the tree of a new room, and removes it when all that ran in it has ended."""
    folder = Path(tempfile.mkdtemp(prefix="room-", dir=CACHE))
    try:
        call("tar", "-C", make_folder(folder / "tree"), "-xpf", archive)
        yield folder / "tree"
    finally:
        shutil.rmtree(folder)


def put_checkout(tree: Path, given: argparse.Namespace) -> Path:
    """Clones the checkout into the room. Returns the home in which it is."""
    home = tree / (f"home/{USER}" if given.user else "root")
    home.chmod(0o700)
    goal = Path(f"{home}{given.checkout}")
    goal.parent.mkdir(exist_ok=True)
    call("git", "-c", f"safe.directory={CHECKOUT}", "clone", "-q", "--no-hardlinks", CHECKOUT, goal)
    if given.user:
        call("chroot", tree, "chown", "-R", f"{USER}:{USER}", f"/home/{USER}")
    return home


def run_room(given: argparse.Namespace) -> int:
    """Makes the room and runs the command there. Returns its status."""
    name = "-".join([given.suite, *(word for word in ("user", "confined", "blank", "tools", "beside_load")
                                    if getattr(given, word))]).replace("_", "-")
    with new_tree(make_tree(given.suite, given.tools or given.user, given.fresh)) as tree:
        home = put_checkout(tree, given)
        if given.packages:
            for pattern in PACKAGES:
                for file in given.packages.rglob(pattern):
                    goal = tree / "packages" / file.relative_to(given.packages)
                    goal.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, goal)
        before = size(tree, home), size(home)
        began = time.monotonic()
        # When `unshare` ends, the kernel ends all processes of the room, and its mounts go.
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", sys.executable,
                 __file__, "--inside", tree, *given.words]
        with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            last = b""
            try:
                for line in running.stdout:
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()
                    last = line if COUNTED.match(line.decode(errors="replace")) else last
            except BaseException:
                running.kill()
                raise
        seconds = time.monotonic() - began
        counts = COUNTED.match(last.decode(errors="replace"))
        told = ", ".join(f"{number or 0} {word}" for number, word in
                         zip(counts.groups() if counts else (), ("passed", "failed", "skipped"), strict=False))
        print(f"room {name}: {seconds:.0f} s, system + {size(tree, home) - before[0]} MB, "
              f"home + {size(home) - before[1]} MB, {told or 'nothing counted'}, status {running.returncode}",
              flush=True)
        return running.returncode


def parse(words: list[str]) -> argparse.Namespace:
    """Returns what the command line says. `words` are what the inner process needs of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0])
    parser.add_argument("--user", action="store_true", help="a user without root; the tools are installed before")
    parser.add_argument("--confined", action="store_true", help="a container without rights")
    parser.add_argument("--tools", action="store_true", help="the tools of a build are installed before")
    parser.add_argument("--blank", action="store_true", help="the checkout's path holds a blank")
    parser.add_argument("--beside-load", action="store_true", help="two busy loops run beside the command")
    parser.add_argument("--packages", type=Path, help="a folder whose packages the room has in /packages")
    parser.add_argument("--fresh", action="store_true", help="make the empty system anew")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help="what to run in the checkout (./hakmem test)")
    given = parser.parse_args(words)
    given.words = words
    given.command = given.command or ["./hakmem", "test"]
    given.checkout = "/a checkout/hakmem" if given.blank else "/hakmem"
    return given


def main() -> int:
    """Runs the command."""
    given = parse(sys.argv[1:])
    if given.inside:
        return run_inside(given.inside, given)
    if os.geteuid() != 0:
        sys.exit("rooms: only root can make a room")
    if shutil.which("debootstrap") is None:
        sys.exit("rooms: debootstrap is missing; install it: apt-get install debootstrap")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    return run_room(given)


if __name__ == "__main__":
    sys.exit(main())
