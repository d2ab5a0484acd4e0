"""Protects `hakmem run` of programs in which HAKMEM cannot take effect: one line says why, and the program runs."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import launch, statistics

import blackbox

# vfs_cap_data of revision 2: permitted and effective cap_net_bind_service.
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")


def run(*arguments, **more):
    """Runs a program that prints statistics at its end if HAKMEM is in it."""
    return launch("--stats=json", "--", *arguments, **more)


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


def has_no_effect(result, status, *words):
    """The program ran to its end without HAKMEM, and one line names it and the reason."""
    assert result.status == status and statistics(result.stderr) == [], result.report()
    lines = [line for line in result.stderr.splitlines() if line.startswith("hakmem: ")]
    assert len(lines) == 1 and all(str(word) in lines[0] for word in words), result.report()


def takes_effect(result, status):
    assert result.status == status and len(statistics(result.stderr)) == 1, result.report()


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie", "-fPIE"]])
def test_a_static_program(compiled, source, folder, flags):
    """Started by itself, and as the interpreter of a script."""
    built = compiled(source, *flags)
    has_no_effect(run(built), 3, built, "static")
    script = folder / "script"
    script.write_text(f"#! {built} x\n")
    script.chmod(0o755)
    has_no_effect(run(script), 3, built, "static")


@pytest.mark.parametrize("machine, word", [(183, "aarch64"), (243, "RISC-V")])
def test_another_machine(program, machine, word):
    data = bytearray(program.read_bytes())
    data[18:20] = machine.to_bytes(2, "little")
    program.write_bytes(data)
    result = run(program)
    assert result.status != 0 and str(program) in result.stderr and word in result.stderr, result.report()


def test_a_32_bit_program(tmp_path):
    """Whether or not this kernel runs it."""
    file, built = tmp_path / "start.S", tmp_path / "start"
    file.write_text(".globl _start\n_start:\n mov $1, %eax\n mov $3, %ebx\n int $0x80\n")
    subprocess.run(["gcc", "-m32", "-nostdlib", "-static", file, "-o", built], check=True)
    result = run(built)
    assert str(built) in result.stderr and "32-bit" in result.stderr, result.report()


def test_other_rights(by_nobody, program):
    """Another user runs root's program. For root nothing changes, and HAKMEM is active. Under no_new_privs the bits
    have no effect."""
    os.chown(program, 0, 65534)
    program.chmod(0o2755)
    has_no_effect(by_nobody("--stats=json", "--", program), 3, program, "set-group-id")
    program.chmod(0o4755)
    has_no_effect(by_nobody("--stats=json", "--", program), 3, program, "set-user-id")
    takes_effect(run(program), 3)
    takes_effect(by_nobody("--stats=json", "--", program, prefix=["setpriv", "--no-new-privs"]), 3)


def test_file_capabilities(by_nobody, program):
    try:
        os.setxattr(program, "security.capability", CAPABILITY)
    except OSError as error:
        pytest.skip(f"this file system or container takes no file capabilities: {error}")
    has_no_effect(by_nobody("--stats=json", "--", program), 3, program, "capabilit")
    takes_effect(run(program), 3)


def test_programs_in_which_it_takes_effect(program, folder):
    script = folder / "plain"
    script.write_text("#!/bin/bash\nexit 4\n")
    script.chmod(0o755)
    takes_effect(run(script), 4)
    loader = blackbox.run(["sh", "-c", "ldd /bin/sh | grep -o '/[^ ]*/ld-[^ ]*'"]).stdout.strip()
    takes_effect(run(loader, program), 3)
