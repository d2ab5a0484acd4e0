"""Protects the set-up that ./hakmem makes: build/venv, Debian packages, and where it builds."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import checkout
import pexpect
import pytest

import blackbox


@pytest.fixture
def script(tmp_path):
    return checkout.make(tmp_path / "checkout")


@pytest.fixture
def open_script():
    """In a checkout of root's that others may read. pytest's own folder is closed to them."""
    with tempfile.TemporaryDirectory(prefix="hakmem-open-") as folder:
        os.chmod(folder, 0o755)
        yield checkout.make(Path(folder, "checkout"))


def start(script, *arguments, **variables):
    return subprocess.Popen([script, *arguments], env=checkout.environment(**variables), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(path, seconds=blackbox.HANG):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} has not come"
        time.sleep(0.02)


def test_two_first_uses_at_once(script):
    """The second starts while the first makes build/venv. It waits, and both succeed with the same one."""
    first = start(script, "stats", "1")
    wait_for(script.parent / "build/venv/pyvenv.cfg")
    second = start(script, "explain", "2")
    said = [(process.communicate(timeout=blackbox.HANG), process.returncode) for process in (first, second)]
    assert [(out, status) for (out, _), status in said] == [("tool stats 1\n", 0), ("tool explain 2\n", 0)], said
    (_, first_told), (_, second_told) = (told for told, _ in said)
    assert first_told.startswith("hakmem: ") and "build/venv" in first_told
    assert second_told.startswith("hakmem: ") and second_told.count("\n") == 1


def test_the_environment_grows_by_what_a_command_takes(script):
    """Commands that only read install little. A complete environment serves all, and other pins make a new one."""
    packages = {"wanted", "served", "pytested", "tested"}

    def run(*words):
        result = blackbox.run([script, *words], env=checkout.environment(), timeout=120)
        assert result.status == 0 and result.stdout == f"tool {' '.join(words)}\n", result.report()
        (site,) = (script.parent / "build/venv").glob("lib/python3.*/site-packages")
        return result.stderr.count("build/venv"), {name for name in packages if (site / f"{name}.py").exists()}

    assert run("stats", "1") == (1, {"wanted"})
    assert run("heap", "1") == (0, {"wanted"})
    assert run("serve", "1") == (1, {"wanted", "served"})
    assert run("explain", "1") == run("serve", "1") == (0, {"wanted", "served"})
    assert run("bench", "show") == (1, packages - {"pytested"})
    assert run("serve", "1") == run("stats", "1") == (0, packages - {"pytested"})
    with (script.parent / "tools/requirements-serve.txt").open("a") as file:
        file.write("# another pin\n")
    assert run("stats", "1") == (1, {"wanted"})


# ---- Debian's packages ----

@pytest.fixture(scope="module")
def no_dpkg(tmp_path_factory):
    """A PATH with every command except Debian's own and cargo."""
    folder = tmp_path_factory.mktemp("bin")
    for place in reversed(os.environ["PATH"].split(":")):
        for command in Path(place).iterdir() if Path(place).is_dir() else ():
            if not command.name.startswith(("dpkg", "apt", "cargo")):
                (folder / command.name).unlink(missing_ok=True)
                (folder / command.name).symlink_to(os.path.realpath(command))
    return str(folder)


@pytest.mark.parametrize("arguments, status, words", [
    (["stats", "4194304"], 1, "there is no process 4194304"),
    (["heap", "4194304"], 1, "4194304"),
    (["trace", "info", "/nonesuch"], 1, "cannot read /nonesuch"),
    (["peers", "list"], 0, ""),
    (["bench", "--list"], 0, ""),
    (["compare", "--", "hakmem-no-such-program"], 1, "program 'hakmem-no-such-program' not found"),
])
def test_nothing_is_asked_for_that_is_there(no_dpkg, arguments, status, words):
    """Another system than Debian, with all that the command needs. These commands never need cargo."""
    result = blackbox.run([blackbox.REPOSITORY / "hakmem", *arguments], env=checkout.environment(PATH=no_dpkg))
    assert result.status == status and words in result.stderr and "Debian" not in result.stderr, result.report()


NOBODY = 65534
LIST = "hakmem-no-such-package  # shows that it is asked for\nbash\n"


def test_root_is_asked_on_a_terminal(script):
    """It prints what it will install and why, and asks. Nothing happens after a no."""
    (script.parent / "tools/packages/package.txt").write_text(LIST)
    run = pexpect.spawn(str(script), ["package"], env=checkout.environment(), timeout=blackbox.HANG, encoding="utf-8",
                        dimensions=(40, 400))
    run.expect(r"hakmem-no-such-package\r\n *hakmem-no-such-package: shows that it is asked for\r\n")
    run.expect(r"\[Y/n\] ")
    run.sendline("n")
    run.expect(pexpect.EOF)
    run.wait()
    assert run.exitstatus == 1 and "installing" not in run.before


def test_who_may_not_install_is_told_how(open_script):
    (open_script.parent / "tools/packages/package.txt").write_text(LIST)
    for path in (open_script.parent, *open_script.parent.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    result = blackbox.run([open_script, "package"], env=checkout.environment(), user="nobody")
    assert result.status == 1, result.report()
    assert "apt-get install hakmem-no-such-package\n" in result.stderr


# What stands for Debian's tools: two packages are in its lists, one of them is installed, and apt-get notes its words.
# While it installs, no service may start (policy-rc.d).
TOOLS = {"dpkg_query": 'for each; do case $each in there|bash) echo "ii  $each"; esac; done',
         "apt_cache": """shift 4
case $1 in
depends) echo "  PreDepends: python3-minimal"; echo "  Depends: $2-14" | sed s/python3-14/python3.11/ ;;
show)
for each; do
case $each in newer-15|libclang-rt-14-dev|libpython3.11-testsuite) echo "Package: $each" ;; esac
done
exit 100
esac""",
         "apt_get": """case "$*" in *install*)
echo "$*" | sed 's/.*--no-install-recommends //' >>"$SAID"; /usr/sbin/policy-rc.d; echo "policy $?" >>"$SAID"; esac"""}


@pytest.mark.parametrize("entries, installed, status, unknown", [
    ("bash", None, 0, None), ("nonesuch|there", None, 0, None), ("nonesuch|newer-15|newer-14", "newer-15", 0, None),
    ("libclang-rt-{clang}-dev", "libclang-rt-14-dev", 0, None),
    ("libpython{python3}-testsuite", "libpython3.11-testsuite", 0, None),
    ("newer-15\nnonesuch", "newer-15", 1, "nonesuch")])
def test_what_a_list_names_is_looked_up(script, tmp_path, entries, installed, status, unknown):
    """Alternatives, and versions of this system. What it lacks is named once, and the rest is installed."""
    said = tmp_path / "said"
    (script.parent / "tools/packages/package.txt").write_text(entries.replace("\n", "  # is for this test\n") + "\n")
    ask = f'source {script} help >/dev/null; offer_packages this $(read_list package package)'
    path = checkout.programs(tmp_path / "programs", **TOOLS)
    result = blackbox.run(["bash", "-c", ask, script], env=checkout.environment(PATH=path, SAID=str(said)))
    assert result.status == status, result.report()
    assert (said.read_text() if said.exists() else None) == (installed and f"{installed}\npolicy 101\n")
    assert not unknown or re.search(rf"hakmem: .*lists.* {unknown}$", result.stderr, re.MULTILINE), result.report()
    assert result.stderr.count(f"needs Debian packages that are not installed: {entries.split()[0]}") <= 1


def test_a_stage_whose_packages_are_missing_is_lost_and_the_others_run(script, tmp_path):
    """The run fails, because --all promises every test; its last line counts them, and --again runs the lost stage."""
    (script.parent / "tools/packages/tools.txt").write_text("nonesuch  # is for this test\n")
    tests = "".join(f'add_test({label} true)\nset_tests_properties({label} PROPERTIES LABELS {label})\n'
                    for label in ("unit", "stress", "bounds", "cost", "programs", "tools", "delivery", "project"))
    # Configures a flavor: release has a test of each kind, each other flavor one.
    cmake = r"""case "$*" in *"-B "*)
folder=$(echo "$*" | sed 's/.*-B \([^ ]*\).*/\1/'); mkdir -p "$folder"; touch "$folder/build.ninja"
case $folder in */release) echo "$TESTS" ;; *) echo "add_test(one true)"
echo "set_tests_properties(one PROPERTIES LABELS stress)" ;; esac >"$folder/CTestTestfile.cmake"; esac"""
    tools = {**TOOLS, "cmake": cmake}
    root = script.parent / "build/aarch64-root"
    for name in ("usr/include/cmocka.h", "usr/lib/aarch64-linux-gnu/libcmocka.so", "lib/aarch64-linux-musl/libc.so",
                 "usr/include/aarch64-linux-musl/none"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    tools["dpkg_query"] = 'for each; do case $each in nonesuch) ;; *) echo "ii  $each"; esac; done'
    env = checkout.environment(PATH=checkout.programs(tmp_path / "programs", **tools), TESTS=tests)
    result = blackbox.run([script, "test", "--all"], env=env, timeout=blackbox.HANG)
    last = result.stdout.splitlines()[-1] if result.stdout else result.stderr
    assert result.status == 1 and re.fullmatch(r"\d+ passed, 1 failed, 0 skipped", last), result.report()
    assert "project" in result.stdout and re.search(r"^failed: stage tools", result.stdout, re.MULTILINE)
    (script.parent / "tools/packages/tools.txt").write_text("bash\n")
    again = blackbox.run([script, "test", "--again"], env=env, timeout=blackbox.HANG)
    assert again.status == 0, again.report()
    assert again.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped", again.report()


# ---- A checkout that cannot be built in ----

SOURCES = ("hakmem", "CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src", "bench", "tools", "python",
           "LICENSE")


@pytest.fixture
def open_folder():
    with tempfile.TemporaryDirectory(prefix="hakmem-open-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


def whole_checkout(folder):
    """A build's part of the sources, owned by root, without a build."""
    folder.mkdir(parents=True)
    for name in SOURCES:
        source = blackbox.REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder / "hakmem"


def test_a_checkout_of_another_user_whose_path_has_a_blank(open_folder):
    """Both at once: the build goes to the user's cache, a message says so, and it is used again. A comma in the path
    does not disturb the linker's options."""
    script = whole_checkout(open_folder / "my, code")
    cache = open_folder / "cache"
    cache.mkdir()
    os.chmod(cache, 0o777)
    for again in (False, True):
        result = blackbox.run([script, "run", "--", "sh", "-c", 'echo "$LD_PRELOAD"; env | grep HAKMEM; exit 4'],
                              env=checkout.environment(XDG_CACHE_HOME=str(cache)), user="nobody", timeout=300)
        (made,) = (cache / "hakmem").iterdir()
        assert (result.status, result.stdout) == (4, f"{made}/release/lib/libhakmem.so\n"), result.report()
        first = result.stderr.splitlines()[0]
        assert f"{script.parent}/build" in first and f"{made} " in first, (again, result.report())
    assert not (script.parent / "build").exists()


def test_a_build_of_another_user_is_used_as_it_is(open_folder):
    """While it is no older than the sources."""
    script = whole_checkout(open_folder / "code")
    library = script.parent / "build/release/lib/libhakmem.so"
    library.parent.mkdir(parents=True)
    shutil.copyfile(blackbox.LIBRARY, library)
    shutil.copytree(blackbox.LIBRARY.parent.parent / "bin", library.parent.parent / "bin",
                    ignore=lambda _, names: set(names) - {"hakmem-run"})
    run = [script, "run", "printenv", "LD_PRELOAD"]
    env = checkout.environment(XDG_CACHE_HOME=str(open_folder))
    result = blackbox.run(run, user="nobody", env=env)
    assert (result.status, result.stdout, result.stderr) == (0, f"{library}\n", ""), result.report()
    os.utime(script.parent / "src/api/libc.c", (time.time() + 60, time.time() + 60))
    result = blackbox.run(run, user="nobody", env=env)
    assert result.status == 1 and "cannot be written to by nobody" in result.stderr, result.report()


@pytest.mark.parametrize("command", ["build", "run true", "test", "stats 1"])
def test_a_folder_that_cannot_be_written_is_named(open_script, command):
    """At once, with advice: neither the checkout nor the cache belongs to this user."""
    result = blackbox.run([open_script, *command.split()], user="nobody",
                          env=checkout.environment(XDG_CACHE_HOME=str(open_script.parent)))
    assert result.status == 1 and "Permission denied" not in result.stderr, result.report()
    assert f"hakmem: {open_script.parent} cannot be written to by nobody, and neither can " in result.stderr
    assert "set XDG_CACHE_HOME to a folder that can, or HAKMEM_BUILD_DIR to a finished build" in result.stderr


def test_what_builds_in_the_checkout_only_says_so(open_script, tmp_path):
    with tempfile.TemporaryDirectory(prefix="hakmem-cache-") as cache:
        os.chmod(cache, 0o777)
        result = blackbox.run([open_script, "test", "--all"], user="nobody",
                              env=checkout.environment(XDG_CACHE_HOME=cache))
        assert result.status == 1 and str(open_script.parent) in result.stderr, result.report()


def test_a_checkout_whose_path_has_a_number_sign(tmp_path):
    """CMake refuses to make files there."""
    script = checkout.make(tmp_path / "code#2")
    result = blackbox.run([script, "build"], env=checkout.environment(XDG_CACHE_HOME=str(tmp_path / "c#")))
    assert result.status == 1 and result.stderr.startswith("hakmem: CMake cannot build in a path with a #, such as ")
    assert "set XDG_CACHE_HOME to a folder without, or move the checkout" in result.stderr


@pytest.mark.parametrize("mark", [";", "$", '"', "\\"])
def test_sources_that_cmake_cannot_build(tmp_path, mark):
    script = checkout.make(tmp_path / f"my{mark}code")
    result = blackbox.run([script, "build"])
    assert (result.status, result.stdout) == (1, ""), result.report()
    assert result.stderr == ('hakmem: CMake cannot build sources whose path has one of ; $ " \\, such as '
                             f"{script.parent}; move the checkout\n")


def test_no_folder_without_a_blank(tmp_path):
    script = checkout.make(tmp_path / "a b")
    result = blackbox.run([script, "build"], env=checkout.environment(XDG_CACHE_HOME=str(tmp_path / "c d")))
    assert result.status == 1 and "set XDG_CACHE_HOME to a folder without, or move the checkout" in result.stderr
