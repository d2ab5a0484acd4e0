"""Protects `hakmem run` from two sets of rules: both commands end alike and say the same for each command line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
STARTER = BUILD / "bin/hakmem-run"
COMMANDS = ([blackbox.REPOSITORY / "hakmem"], [sys.executable, "-m", "hakmem"])
# The commands leave out what only bash sets.
OWN = re.compile(r"^(_|SHLVL|OLDPWD|PWD|PYTHON\w+)=.*\n", re.M)


def both(*words, env=None, **more):
    """(status, output, messages) of each of the two commands."""
    found = [blackbox.run([*command, "run", *words],
                          env={"HAKMEM_BUILD_DIR": str(BUILD), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}, **more)
             for command in COMMANDS]
    # Statistics have numbers of their own in each run.
    return [(result.status, sorted(OWN.sub("", result.stdout).splitlines()), re.sub(r"\d+", "N", result.stderr))
            for result in found]


# One line a test: each starts both commands.
LINES = [
    # what runs
    "--stats=json true --stats", "--profile env", "--secure --set purge_delay=7 --set=populate=a=b env",
    "-- sh -c kill\\ -TERM\\ $$", "--heap-profile=file.gz sh -c echo\\ $HAKMEM_HEAP_PROFILE; exit\\ 7", "- x",
    # what is refused
    "", "--", "--stats= true", "--stat true", "--profile=1 true", "--help-me", "--set", "--set x true",
    "--set purge_dely=1 true", "--set HAKMEM_=1 true", "--profile --secure true", "--heap-profile",
    "--heap-profile /dev/null/x true", "--budget= true", "--markdown file true",
    # what cannot be run
    "nosuchprogram", "./words", "./odd", "--set x=1 nosuchprogram",
    # what HAKMEM has no effect in
    "./static", "--budget peak=1G ./static", "./script", "./foreign",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, compiled):
    """Programs of all kinds."""
    made = tmp_path_factory.mktemp("same")
    source = made / "three.c"
    source.write_text("int main(void)\n{\n    return 3;\n}\n")
    shutil.copy(compiled(source, "-static"), made / "static")
    (made / "words").write_text("words\n")
    (made / "odd").write_text("#!/nosuchinterpreter\n")
    (made / "script").write_text(f"#!{made}/static\n")
    program = bytearray((made / "static").read_bytes())
    program[18] = 243
    (made / "foreign").write_bytes(program)
    for name in ("odd", "script", "foreign"):
        (made / name).chmod(0o755)
    return made


@pytest.mark.parametrize("line", LINES)
def test_a_line(folder, line):
    words = [word.replace("\\ ", " ") for word in re.findall(r"(?:\\ |\S)+", line)]
    script, package = both(*words, cwd=folder, env={"PATH": f"{folder}:{os.environ['PATH']}"})
    assert script == package
    assert "Traceback" not in script[2] and (script[0] == 0 or line.startswith("-- sh") or script[2]), script


def test_the_environment_is_the_callers():
    """Also variables that a shell cannot name, and bytes that are no text."""
    odd = {"a.b": "1", "x(86)": "2", "BASH_FUNC_f%%": "() {  :\n}"}
    show = "import os; print(os.environb[b'bytes'], *sorted(os.environ.items()), sep='\\n')"
    env = {**odd, "bytes": os.fsdecode(b"\xff\xfe"), "LD_PRELOAD": "libm.so.6", "HAKMEM_PEERS_DIR": "/tmp"}
    for status, output, messages in both("--", sys.executable, "-c", show, env=env):
        assert (status, messages) == (0, "") and r"b'\xff\xfe'" in output
        assert {str(item) for item in odd.items()} <= set(output)
        assert str(("LD_PRELOAD", f"{BUILD}/lib/libhakmem.so:libm.so.6")) in output
        assert not any("HAKMEM_" in line for line in output if "PYTEST" not in line)


def test_the_pages_name_what_hakmem_run_takes():
    pages = [blackbox.run([*command, "run", "--help"], env={"COLUMNS": "300"}).stdout for command in COMMANDS]
    script, package = (set(re.findall(r"^  .*?(--[a-z-]+)", page, re.M)) for page in pages)
    assert script == package - {"--help"} and len(script) >= 7
    for option in script:
        said = subprocess.run([STARTER, "needs", option], capture_output=True, text=True, check=False)
        assert said.returncode == 2 and "unknown option" not in said.stderr, said


@pytest.mark.parametrize("word, option", [
    ("--heap-profil", "--heap-profile"), ("--heap-profil=x", "--heap-profile"), ("--hep-profile=x", "--heap-profile"),
    ("--stat", "--stats"), ("--mark", "--markdown"), ("--sett", "--set"), ("--no-such-option", None), ("-x", None),
    ("--x", None), ("--" + "x" * 10_000, None)])
def test_an_option_that_is_spelled_alike(word, option):
    said = subprocess.run([STARTER, "run", word, "true"], capture_output=True, text=True, check=False)
    message = said.stderr.splitlines()[0]
    assert said.returncode == 2 and word.partition("=")[0] in message
    assert re.findall(r"(--[a-z-]+)\?", message) == ([option] if option else [])


def test_hakmem_run_alone(tmp_path):
    """It finds the library beside itself, as the layouts of a build and of a wheel have it."""
    for layout in ("lib", "lib/cycles"):
        (tmp_path / layout).mkdir()
        (tmp_path / layout / "libhakmem.so").write_bytes(blackbox.LIBRARY.read_bytes())
    (tmp_path / "bin").mkdir()
    shutil.copy(STARTER, tmp_path / "bin")
    for words, library in (([], "lib"), (["--profile"], "lib/cycles")):
        result = blackbox.run([tmp_path / "bin/hakmem-run", "run", *words, "printenv", "LD_PRELOAD"])
        assert result.stdout == f"{tmp_path}/{library}/libhakmem.so\n", result.report()
    result = blackbox.run([tmp_path / "bin/hakmem-run", "run", "--secure", "true"])
    assert result.status == 1 and "lib/libhakmem-secure.so" in result.stderr, result.report()
    assert blackbox.run([STARTER, "true"]).status == 2


def test_a_build_without_hakmem_run(tmp_path):
    """HAKMEM_BUILD_DIR may name an older build. The commands' own hakmem-run takes its library."""
    (tmp_path / "lib").mkdir()
    shutil.copy(blackbox.LIBRARY, tmp_path / "lib/libhakmem.so")
    outcomes = both("printenv", "LD_PRELOAD", env={"HAKMEM_BUILD_DIR": str(tmp_path)})
    assert outcomes == [(0, [f"{tmp_path}/lib/libhakmem.so"], "")] * 2
