#!/usr/bin/env python3
"""Makes HAKMEM's one-file source: hakmem.c, which compiles without any option, and hakmem.h.

The files of src/ follow each other, lowest layer first. A header stands where it is first included. HAK_CODE stands
before each function. A file that must differ in a single translation unit checks HAK_ONE_FILE (src/base/base.h).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from check_architecture import LAYERS, blank_c

ROOT = Path(__file__).resolve().parent.parent

# Left out of the one file: replacements of names that only the shared library can replace,
# and code of the libraries that stand in for other allocators.
LEFT_OUT = {"api/alloc_token.c", "os/lse.c", "os/older_libc.c", "api/dlopen.c",
            "api/create.c",
            "api/sandbox.c", "superslab/limits_shared.c", "options/malloc_conf.c", "pool/dense.c", "front/seats.c"}
LAYERS_LEFT_OUT = {"je", "tc"}
# In the order in which the override archive links them. They stand between `#if` and `#endif`.
OVERRIDE = ["api/libc.c", "api/sized.c", "api/cxx.c", "api/runtime.c", "api/interposed.c"]
PUBLIC_HEADERS = ["hakmem/hakmem.h", "hakmem/stats.h", "hakmem/profile.h", "hakmem/guard.h",
                  "hakmem/scope.h"]

INCLUDE = re.compile(r'#include (?:"([^"]+)"|<([^>]+)>)')
# Where the first line of a function's definition begins. Its parameters may go on in further lines.
FUNCTION = re.compile(r"^(?=[A-Za-z_][^\n;={}#]*\([^;={}#]*\)[ \n]*\{)", re.M)
MACRO = re.compile(r"^#(define|undef) (\w+)", re.M)

RULE = "=" * 100

SOURCE_HEAD = """\
/*
 * HAKMEM {version}: a general-purpose memory allocator for Linux, in one file.
 * Made by tools/amalgamate.py of HAKMEM's source: change that, not this.
 *
 *     cc -O2 -c hakmem.c
 *
 * Any C11 compiler that knows GNU's extensions takes it, gcc and clang without a warning; no -I and no -D is needed. A
 * program links the object with -pthread, and includes hakmem.h.
 *
 *   -DHAKMEM_OVERRIDE=1   malloc, free, all of their family and the C++ operators are HAKMEM's. Without it the object
 *                         has the hak_* names only, and the C library's malloc stays what it is.
 *   -DHAKMEM_BUILD_CYCLES=1 HAKMEM_TINY_PROFILE=1 prints what calls took, at exit.
 *   -DHAKMEM_BUILD_DEBUG=1  HAKMEM checks its own invariants, which takes time.
 *
 * Three of the compiler's options matter where they are used at all:
 *   -fno-omit-frame-pointer  lets the heap profile walk stacks by frame pointers (HAKMEM_HEAP_PROFILE_UNWIND=fp). The
 *                         usual way, by unwind tables, needs nothing.
 *   -fno-asynchronous-unwind-tables  takes those tables away; -fexceptions brings back what a new-handler's exception needs.
 *   -Wl,-Bsymbolic        is for a shared library that the object with HAKMEM_OVERRIDE is part of.
 *
{license}
 */
"""

HEADER_HEAD = """\
/*
 * HAKMEM {version}: the public interface of hakmem.c, which is HAKMEM in one file.
 * Made by tools/amalgamate.py of HAKMEM's source: change that, not this.
 *
{license}
 */
"""


class AmalgamationError(Exception):
    """The source does not fit into one file."""


def read(path: Path) -> str:
    """Returns the text of a file."""
    return path.read_text(encoding="utf-8")


def version_of(root: Path) -> str:
    """Returns HAKMEM's version."""
    found: list[str] = re.findall(r'#define HAK_VERSION_STRING "([^"]+)"', read(root / "include/hakmem/hakmem.h"))
    (version,) = found
    return version


def as_comment(text: str) -> str:
    """Returns the text as the lines of a block comment."""
    return "\n".join(f" * {line}".rstrip() for line in text.strip().splitlines())


def is_left_out(name: str) -> bool:
    """Returns whether a source is no part of the one file."""
    return name in LEFT_OUT or name.split("/")[0] in LAYERS_LEFT_OUT


def sources(root: Path) -> Iterator[str]:
    """Yields the .c files of the one file, lowest layer first, as paths relative to src/."""
    for layer in LAYERS:
        for path in sorted((root / "src" / layer).glob("*.c")):
            name = f"{layer}/{path.name}"
            if not is_left_out(name) and name not in OVERRIDE:
                yield name


def with_sections(text: str) -> str:
    """Returns C text with HAK_CODE (src/base/base.h) before each function that it defines."""
    return FUNCTION.sub("HAK_CODE ", text)


@dataclass
class Output:
    """Text that grows file by file, with each header once."""

    root: Path
    text: list[str] = field(default_factory=list)
    included: set[str] = field(default_factory=set)

    def find(self, name: str) -> Path | None:
        """Returns the path of a file of the tree, or None."""
        for folder in ("src", "include"):
            if (self.root / folder / name).is_file():
                return self.root / folder / name
        return None

    def include(self, line: str, ours: str | None, system: str | None) -> None:
        """Appends what replaces an #include line: the header's text, the line itself, or nothing the second time."""
        name = ours or system
        if name is None or name in self.included:
            return
        self.included.add(name)
        if self.find(name):
            self.add(name)
        elif ours:
            raise AmalgamationError(f'there is no "{name}"')
        else:
            self.text.append(line)

    def add(self, name: str) -> None:
        """Appends a file of the tree."""
        self.text.append(f"\n/* {RULE}\n * {name}\n * {RULE} */\n")
        path = self.find(name)
        assert path is not None
        for line in with_sections(read(path)).splitlines():
            if match := INCLUDE.match(line):
                self.include(line, match[1], match[2])
            elif line != "#define _GNU_SOURCE":
                self.text.append(line)


def macros_at_end(text: str) -> list[str]:
    """Returns the macros that are still defined at the end of a file."""
    defined = {name: directive for directive, name in MACRO.findall(text)}
    return sorted(name for name, directive in defined.items() if directive == "define" and name != "_GNU_SOURCE")


def check_macros(root: Path, names: list[str]) -> None:
    """Raises AmalgamationError if a file uses a name that another file leaves defined as a macro. Separate
    compilation hides such clashes."""
    texts = {name: blank_c(read(root / "src" / name)) for name in names}
    headers = {path: blank_c(read(path)) for path in (root / "src").rglob("*.h")}
    words = {other: set(re.findall(r"\w+", text)) for other, text in [*texts.items(), *headers.items()]}
    clashes = [f"{name} defines the macro {macro}, a name that {other} uses"
               for name, text in texts.items() for macro in macros_at_end(text)
               for other, used in words.items() if other != name and macro in used]
    if clashes:
        raise AmalgamationError("\n".join(clashes))


def outermost(text: str) -> str:
    """Returns C text without preprocessor lines, with `{}` and `@` for contents of braces and parentheses."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", blank_c(text), flags=re.M)
    for inside, instead in ((r"\([^()]*\)", "@"), (r"\{[^{}]+\}", "{}")):
        while (shorter := re.sub(inside, instead, text)) != text:
            text = shorter
    return text


def static_objects(text: str) -> Iterator[str]:
    """Yields the names of a file's own static objects, without functions."""
    text = re.sub(r"\(\s*\*[\s\w]*?(\w+)\s*\)\s*(?=\()", r"\1 = ", text)
    text = re.sub(r"\b(?:__attribute__|_Alignas|_Atomic)\s*@|=[^,;]*", "", outermost(text))
    for declaration in re.findall(r"^static\b([^;@]*);", text, re.M):
        yield from re.findall(r"(\w+)\s*(?:\[[^]]*\]\s*)*(?:,|$)", declaration)


def check_objects(root: Path, names: list[str]) -> None:
    """Raises AmalgamationError if two files have a static object of one name: without initializers, C would take
    both for one object."""
    home: dict[str, str] = {}
    for name in names:
        for found in static_objects(read(root / "src" / name)):
            if home.setdefault(found, name) != name:
                raise AmalgamationError(f"{home[found]} and {name} each have a static {found}")


def make_source(root: Path) -> str:
    """Returns the text of hakmem.c."""
    names = list(sources(root))
    check_macros(root, names + OVERRIDE)
    check_objects(root, names + OVERRIDE)
    output = Output(root)
    output.text += [SOURCE_HEAD.format(version=version_of(root), license=as_comment(read(root / "LICENSE"))),
                    "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n#define HAK_ONE_FILE 1\n",
                    '#include "hakmem.h"']
    output.included.update(PUBLIC_HEADERS)
    for name in names:
        output.add(name)
    output.text.append("\n#if defined(HAKMEM_OVERRIDE) && HAKMEM_OVERRIDE")
    for name in OVERRIDE:
        output.add(name)
    output.text.append("\n#endif /* HAKMEM_OVERRIDE */")
    return "\n".join(output.text) + "\n"


def make_header(root: Path) -> str:
    """Returns the text of hakmem.h."""
    output = Output(root)
    output.text.append(HEADER_HEAD.format(version=version_of(root), license=as_comment(read(root / "LICENSE"))))
    output.included.add(PUBLIC_HEADERS[0])
    for name in PUBLIC_HEADERS:
        output.add(name)
    return "\n".join(output.text) + "\n"


def write(folder: Path, root: Path = ROOT) -> None:
    """Writes hakmem.c and hakmem.h into the folder, which it makes if needed."""
    made = {"hakmem.c": make_source(root), "hakmem.h": make_header(root)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="hakmem amalgamate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where hakmem.c and hakmem.h go; made where it is missing")
    arguments = parser.parse_args()
    try:
        write(arguments.folder)
    except (AmalgamationError, OSError) as error:
        print(f"hakmem: {error}", file=sys.stderr)
        return 1
    print(f"hakmem: made {arguments.folder / 'hakmem.c'} and {arguments.folder / 'hakmem.h'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
