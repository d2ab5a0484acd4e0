"""Protects `hakmem run` of programs in which HAKMEM cannot take effect: one line says why, and the program runs."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
# vfs_cap_data of revision 2: permitted and effective cap_net_bind_service.
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")


@pytest.fixture(params=["script", "package"])
def launch(request):
    command = [blackbox.REPOSITORY / "hakmem"] if request.param == "script" else [sys.executable, "-m", "hakmem"]

    def launch(*arguments, prefix=(), **more):
        return blackbox.run([*prefix, *command, "run", "--set", "verbose=1", *arguments], env={
            "HAKMEM_BUILD_DIR": str(BUILD), "COLUMNS": "300", "PYTHONDONTWRITEBYTECODE": "1"}, **more)

    return launch


@pytest.fixture(scope="module")
def folder():
    """A folder that other users may read. pytest closes its own folders to others at the start of each session."""
    with tempfile.TemporaryDirectory(prefix="hakmem-open-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


@pytest.fixture(scope="module")
def source(folder):
    made = folder / "three.c"
    made.write_text("#include <stdlib.h>\nint main(void)\n{\n    free(malloc(100));\n    return 3;\n}\n")
    return made


@pytest.fixture
def program(compiled, source, folder):
    """A copy of the dynamic program, whose rights a test may change."""
    copy = folder / "three"
    copy.unlink(missing_ok=True)
    shutil.copy(compiled(source), copy)
    return copy


def says_no_effect(result, status, *words):
    """The program ran to its end, HAKMEM did not print its start, and one line says why."""
    assert result.status == status, result.report()
    lines = [line for line in result.stderr.splitlines() if line.startswith("hakmem: ")]
    assert len(lines) == 1 and lines[0].startswith("hakmem: no effect: "), result.report()
    assert all(word in lines[0] for word in words), result.report()


def takes_effect(result, status):
    assert result.status == status and "no effect" not in result.stderr, result.report()
    assert "hakmem: version" in result.stderr, result.report()


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie", "-fPIE"]])
def test_a_static_program(launch, compiled, source, flags):
    built = compiled(source, *flags)
    says_no_effect(launch("--", built), 3, f"{built} is linked statically")


def test_a_go_program(launch, tmp_path):
    file = tmp_path / "a.go"
    file.write_text("package   a\n")
    program = shutil.which("gofmt") or shutil.which("gofmt", path=Path(shutil.which("go")).resolve().parent)
    result = launch("--", program, file)
    says_no_effect(result, 0, "is a Go program that is linked statically")
    assert result.stdout == "package a\n"


def test_a_32_bit_program(launch, tmp_path):
    """Whether or not this kernel runs it."""
    file, built = tmp_path / "start.S", tmp_path / "start"
    file.write_text(".globl _start\n_start:\n mov $1, %eax\n mov $3, %ebx\n int $0x80\n")
    subprocess.run(["gcc", "-m32", "-nostdlib", "-static", file, "-o", built], check=True)
    result = launch("--", built)
    assert f"hakmem: no effect: {built} is a program for 32-bit x86, and the library is for " in result.stderr


@pytest.mark.parametrize("machine, words", [(183, "for aarch64"), (243, "for 64-bit RISC-V")])
def test_another_machine(launch, program, machine, words):
    data = bytearray(program.read_bytes())
    data[18:20] = machine.to_bytes(2, "little")
    program.write_bytes(data)
    result = launch("--", program)
    assert result.status != 0 and f"no effect: {program} is a program {words}, and the library is" in result.stderr


@pytest.mark.parametrize("rights, words", [(0o4755, "is set-user-id"), (0o2755, "is set-group-id")])
def test_other_rights(launch, program, rights, words):
    """Another user runs root's program. For root nothing changes, and HAKMEM is active."""
    os.chown(program, 0, 65534)
    program.chmod(rights)
    says_no_effect(launch("--", program, user="nobody"), 3, f"{program} {words}", "ignores LD_PRELOAD")
    if rights & 0o4000:
        takes_effect(launch("--", program), 3)


def test_file_capabilities(launch, program):
    os.setxattr(program, "security.capability", CAPABILITY)
    says_no_effect(launch("--", program, user="nobody"), 3, f"{program} has file capabilities")
    takes_effect(launch("--", program), 3)


def test_a_process_that_gains_no_rights(launch, program):
    """Under no_new_privs the bit has no effect, so the library is loaded."""
    program.chmod(0o4755)
    takes_effect(launch("--", program, prefix=["setpriv", "--no-new-privs"], user="nobody"), 3)


def test_a_script_of_a_static_interpreter(launch, compiled, source, folder):
    interpreter = compiled(source, "-static")
    script = folder / "script"
    script.write_text(f"#! {interpreter} x\n")
    script.chmod(0o755)
    says_no_effect(launch("--", script), 3, f"{interpreter} is linked statically")


def test_programs_in_which_it_takes_effect(launch, program, folder):
    script = folder / "plain"
    script.write_text("#!/bin/sh\nexit 4\n")
    script.chmod(0o755)
    takes_effect(launch("--", script), 4)
    takes_effect(launch("--", program, user="nobody"), 3)
    loader = blackbox.run(["sh", "-c", "ldd /bin/sh | grep -o '/[^ ]*/ld-[^ ]*'"]).stdout.strip()
    takes_effect(launch("--", loader, program), 3)
