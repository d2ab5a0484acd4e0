#!/usr/bin/env python3
"""Makes HAKMEM's one-file source: hakmem.c, which a compiler needs no option for, and hakmem.h.

The parts of src/ follow each other as they are, lowest layer first; a header stands where it is first included. What a
part must do differently in one translation unit it says itself, by HAK_ONE_FILE (src/base/base.h).
"""

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from check_architecture import LAYERS, blank_c

ROOT = Path(__file__).resolve().parent.parent

# What the one file does without: the system that tests steer, and the names that only the shared library can stand in
# front of.
LEFT_OUT = {"os/fake.c", "os/fake_ranges.c", "api/dlopen.c", "api/create.c", "api/sandbox.c",
            "superslab/limits_shared.c"}
# In the order in which the override archive links them; between `#if` and `#endif`.
OVERRIDE = ["api/libc.c", "api/cxx.c", "api/runtime.c", "api/interposed.c"]
PUBLIC_HEADERS = ["hakmem/hakmem.h", "hakmem/stats.h", "hakmem/profile.h"]

INCLUDE = re.compile(r'#include (?:"([^"]+)"|<([^>]+)>)')
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
 * Four of the compiler's options matter where they are used at all:
 *   -fno-omit-frame-pointer  lets the heap profile walk stacks by frame pointers (HAKMEM_HEAP_PROFILE_UNWIND=fp). The
 *                         usual way, by unwind tables, needs nothing.
 *   -fno-asynchronous-unwind-tables  takes those tables away; -fexceptions brings back what a new-handler's exception needs.
 *   -ffunction-sections   makes HAKMEM's own functions part of each stack of the heap profile, above the program's.
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


def read(path):
    return path.read_text(encoding="utf-8")


def version_of(root):
    (found,) = re.findall(r'#define HAK_VERSION_STRING "([^"]+)"', read(root / "include/hakmem/hakmem.h"))
    return found


def as_comment(text):
    return "\n".join(f" * {line}".rstrip() for line in text.strip().splitlines())


def sources(root):
    """The .c files of the one file, lowest layer first, as paths relative to src/."""
    for layer in LAYERS:
        for path in sorted((root / "src" / layer).glob("*.c")):
            name = f"{layer}/{path.name}"
            if name not in LEFT_OUT and name not in OVERRIDE:
                yield name


@dataclass
class Output:
    """Text that grows by files, each header once."""

    root: Path
    text: list = field(default_factory=list)
    included: set = field(default_factory=set)

    def find(self, name):
        for folder in ("src", "include"):
            if (self.root / folder / name).is_file():
                return self.root / folder / name
        return None

    def include(self, line, ours, system):
        """What stands in place of an #include line: the header's text, the line, or nothing where it was before."""
        name = ours or system
        if name in self.included:
            return
        self.included.add(name)
        if self.find(name):
            self.add(name)
        elif ours:
            raise AmalgamationError(f'there is no "{name}"')
        else:
            self.text.append(line)

    def add(self, name):
        """Appends a file of the tree."""
        self.text.append(f"\n/* {RULE}\n * {name}\n * {RULE} */\n")
        for line in read(self.find(name)).splitlines():
            if match := INCLUDE.match(line):
                self.include(line, *match.groups())
            elif line != "#define _GNU_SOURCE":
                self.text.append(line)


def macros_at_end(text):
    """The macros that a file leaves behind."""
    defined = dict(reversed(found) for found in MACRO.findall(text))
    return sorted(name for name, directive in defined.items() if directive == "define" and name != "_GNU_SOURCE")


def check_macros(root, names):
    """A macro ends with its file in a build of many files, and not in this one: no other file may use its name."""
    texts = {name: blank_c(read(root / "src" / name)) for name in names}
    headers = {path: blank_c(read(path)) for path in (root / "src").rglob("*.h")}
    clashes = [f"{name} defines the macro {macro}, a name that {other} uses"
               for name, text in texts.items() for macro in macros_at_end(text)
               for other, other_text in [*texts.items(), *headers.items()]
               if other != name and re.search(rf"\b{macro}\b", other_text)]
    if clashes:
        raise AmalgamationError("\n".join(clashes))


def outermost(text):
    """C text without preprocessor lines; what is in braces or parentheses has become `{}` or `@`."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", blank_c(text), flags=re.M)
    for inside, instead in ((r"\([^()]*\)", "@"), (r"\{[^{}]+\}", "{}")):
        while (shorter := re.sub(inside, instead, text)) != text:
            text = shorter
    return text


def static_objects(text):
    """The names of a file's own objects: what is declared static, without what makes it a function."""
    text = re.sub(r"\(\s*\*[\s\w]*?(\w+)\s*\)\s*(?=\()", r"\1 = ", text)
    text = re.sub(r"\b(?:__attribute__|_Alignas|_Atomic)\s*@|=[^,;]*", "", outermost(text))
    for declaration in re.findall(r"^static\b([^;@]*);", text, re.M):
        yield from re.findall(r"(\w+)\s*(?:\[[^]]*\]\s*)*(?:,|$)", declaration)


def check_objects(root, names):
    """C takes two files' static objects of one name and type for one object, where neither has a value."""
    home = {}
    for name in names:
        for found in static_objects(read(root / "src" / name)):
            if home.setdefault(found, name) != name:
                raise AmalgamationError(f"{home[found]} and {name} each have a static {found}")


def make_source(root):
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


def make_header(root):
    output = Output(root)
    output.text.append(HEADER_HEAD.format(version=version_of(root), license=as_comment(read(root / "LICENSE"))))
    output.included.add(PUBLIC_HEADERS[0])
    for name in PUBLIC_HEADERS:
        output.add(name)
    return "\n".join(output.text) + "\n"


def write(folder, root=ROOT):
    """Writes hakmem.c and hakmem.h into the folder, which is made where it is missing."""
    made = {"hakmem.c": make_source(root), "hakmem.h": make_header(root)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


def main():
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
