#!/usr/bin/env python3
"""Sets HAKMEM's version in every file that contains it, and closes the unreleased part of CHANGELOG.md. The first
step of a release (docs/dev/release.md). tests/delivery/package/test_version.py checks that no file was forgotten."""

import argparse
import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


def replacements(major: str, minor: str, patch: str) -> dict[str, list[tuple[str, str]]]:
    """Returns {file: [(pattern, replacement)]}. Each pattern must match at least once."""
    version = f"{major}.{minor}.{patch}"
    numbers = [(rf"(?<=_VERSION_{name} )\d+", number)
               for name, number in (("MAJOR", major), ("MINOR", minor), ("PATCH", patch))]
    return {
        "include/hakmem/hakmem.h": [*numbers, (r'"\d+\.\d+\.\d+"', f'"{version}"')], "src/base/version.h": numbers,
        "python/pyproject.toml": [(r'^version = ".*"$', f'version = "{version}"')], "rust/hakmem/Cargo.toml": [
            (r'^version = ".*"$', f'version = "{version}"'), (r'(?<=version = "=)[^"]*', version)
        ], "rust/hakmem-sys/Cargo.toml": [(r'^version = ".*"$', f'version = "{version}"')], "rust/Cargo.lock": [
            (r'(?<=^name = "hakmem"\nversion = ")[^"]*', version),
            (r'(?<=^name = "hakmem-sys"\nversion = ")[^"]*', version)
        ], "CHANGELOG.md": [(r"^## Unreleased\n", f"## Unreleased\n\n## {version} - {datetime.date.today()}\n")],
    }


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Set HAKMEM's version in every file that tells it.")
    parser.add_argument("version", help="such as 0.3.0")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    arguments = parser.parse_args()
    found = VERSION.fullmatch(arguments.version)
    if not found:
        parser.error(f"{arguments.version} is no version: three numbers are wanted, such as 0.3.0")
    texts = {}
    for name, rules in replacements(*found.groups()).items():
        file = arguments.root / name
        text = file.read_text()
        for pattern, replacement in rules:
            text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
            if count == 0:
                sys.exit(f"set_version: {file} has no {pattern}; nothing was changed")
        texts[file] = text
    for file, text in texts.items():
        file.write_text(text)
        print(file.relative_to(arguments.root))


if __name__ == "__main__":
    main()
