"""Checks the values of HAKMEM's options with the library's own parser, in a short program."""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from pathlib import Path

from hakmem.doctor.findings import Finding
from hakmem.paths import COMMAND

SECONDS = 20
# Limits the program, whatever the options ask for (HAKMEM_SS_PREWARM can ask for gigabytes).
ADDRESS_SPACE = 256 << 20
# Options that name a file which a program writes at its end.
FILES = ("HAKMEM_HEAP_PROFILE", "HAKMEM_STATS_FILE")
# The heap profile's options are parsed only if a profile starts.
PROFILE = "HAKMEM_HEAP_PROFILE_"
REFUSED = re.compile(r"hakmem: (HAKMEM_\w+)=(.*)")
EXPECTED = re.compile(r"(.*) is not (.*); using (.*)")


def said_of(options: dict[str, str], library: Path) -> list[str]:
    """Returns what the library says about its options when it starts in a program that does nothing."""
    with tempfile.TemporaryDirectory(prefix="hakmem-doctor-") as folder:
        given = {name: f"{folder}/file" if name in FILES and value else value for name, value in options.items()}
        if any(name.startswith(PROFILE) for name in given):
            given.setdefault("HAKMEM_HEAP_PROFILE", f"{folder}/file")
        run = subprocess.run(["/bin/sh", "-c", ":"], env={**given, "LD_PRELOAD": str(library)}, check=False,
                             capture_output=True, text=True, errors="replace", timeout=SECONDS, cwd=folder,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)))
    return run.stderr.splitlines()


def refusal(text: str) -> Finding:
    """Returns the finding for a line such as `HAKMEM_THP=x is not auto, never or always; using auto`."""
    if found := EXPECTED.fullmatch(text):
        given, wanted, used = found.groups()
        name = given.partition("=")[0]
        return Finding("warning", "options", f"{given} is not {wanted}: it is ignored, and {used} is in force",
                       f"give {name} {wanted}, or leave it out")
    return Finding("warning", "options", text, "docs/options.md says what it takes")


def check_values(options: dict[str, str], library: Path) -> list[Finding]:
    """Returns findings on the values of options that the library knows."""
    if not options:
        return []
    try:
        lines = said_of(options, library)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [Finding("note", "options", f"their values were not looked at: /bin/sh did not run with {library}: "
                        f"{error}", f"{COMMAND} doctor without a PID looks at that library")]
    return [refusal(line.removeprefix("hakmem: ")) for line in lines if REFUSED.fullmatch(line)]
