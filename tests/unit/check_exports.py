"""Protects the exported names of a library: exactly those in exports.txt.

    check_exports.py NM LIBRARY EXPORTS
"""

import subprocess
import sys
from pathlib import Path


def exported(nm: str, library: str) -> set[str]:
    """Names that the library exports, without version suffixes."""
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines() if line.strip()}


def listed(path: str) -> set[str]:
    """Names in the list, one a line; # begins a comment."""
    lines = (line.split("#")[0].strip() for line in Path(path).read_text(encoding="utf-8").splitlines())
    return {line for line in lines if line}


def main() -> int:
    nm, library, path = sys.argv[1:]
    have, wanted = exported(nm, library), listed(path)
    for name in sorted(have - wanted):
        print(f"{library} exports {name}, which {path} does not list")
    for name in sorted(wanted - have):
        print(f"{library} does not export {name}, which {path} lists")
    return 0 if have == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
