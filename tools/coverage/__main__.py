"""Tells which lines and branches of src/ the tests of the flavor coverage have run (docs/dev/coverage.md).

  ./hakmem test --coverage                         builds, runs the tests, and then does the next
  build/venv/bin/python tools/coverage             the figures of each folder, and the checks
  build/venv/bin/python tools/coverage --missing src/os      the lines that did not run, with their functions
"""

import argparse
import sys
from pathlib import Path

import figures
import known
from figures import Share, Source, by_folder

ROOT = Path(__file__).resolve().parent.parent.parent
# The layers whose coverage is bounded, and the least of their lines and of their branches, in percent.
CORE = ("base", "config", "os", "options", "superslab", "pool", "harden", "profile", "front")
LEAST = (95, 85)


def print_missing(sources: dict[str, Source], chosen: list[str], branches: bool) -> None:
    """Prints the lines that did not run, and with `branches` the ways that no condition took."""
    for name, source in sorted(sources.items()):
        if chosen and not any(f"src/{name}".startswith(word) for word in chosen):
            continue
        for line, count in sorted(source.lines.items()):
            if count == 0:
                print(f"src/{name}:{line} {source.function(line)}: {source.text[line - 1].strip()}")
        if branches:
            for (line, column), counts in sorted(source.branches.items()):
                if source.lines.get(line) and 0 in counts:
                    never = "neither" if counts == [0, 0] else "never false" if counts[1] == 0 else "never true"
                    print(f"src/{name}:{line}:{column} {source.function(line)}: {never}: "
                          f"{source.text[line - 1].strip()}")


def write_html(build: Path, profile: Path, folder: Path) -> None:
    """Writes the sources with the count of each line and of each branch, and their index."""
    figures.output_of("llvm-cov", "show", *figures.arguments(build, profile), "-format=html",
                      "-show-branches=count", f"-output-dir={folder}", ROOT / "src")


def row(name: str, lines: Share, branches: Share) -> str:
    """Returns a row of the figures."""
    return (f"{name:16} {lines.run:6} of {lines.all:6} lines {lines.percent():6.1f} %  "
            f"{branches.run:6} of {branches.all:6} branches {branches.percent():6.1f} %")


def tell(sources: dict[str, Source]) -> bool:
    """Prints the figures of each folder and of the core. Returns whether the core has enough."""
    folders = by_folder(sources)
    core = (Share(), Share())
    for folder, shares in folders.items():
        print(row(f"src/{folder}", *shares))
        for total, share in zip(core, shares, strict=True):
            if folder in CORE:
                total.run, total.all = total.run + share.run, total.all + share.all
    print(row("base to front", *core))
    good = True
    for share, least, what in zip(core, LEAST, ("lines", "branches"), strict=True):
        if share.percent() < least:
            print(f"coverage: {share.percent():.1f} % of the {what} from base to front ran, less than {least} %")
            good = False
    return good


def check(sources: dict[str, Source]) -> bool:
    """Compares what did not run with the list. Returns whether they agree."""
    wrong, unknown = known.check(known.entries(known.LIST.read_text()),
                                 {name: source for name, source in sources.items() if name.split("/")[0] in CORE})
    for line in wrong:
        print(f"coverage: uncovered.toml: {line}")
    for name, lines in sorted(unknown.items()):
        for number in lines:
            print(f"coverage: src/{name}:{number} did not run, and uncovered.toml does not say why: "
                  f"{sources[name].text[number - 1].strip()}")
    return not wrong and not unknown


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="tools/coverage", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chosen", nargs="*", help="folders or files, such as src/pool, for --missing")
    parser.add_argument("--build", type=Path, default=ROOT / "build/coverage", help="the build (build/coverage)")
    parser.add_argument("--profile", type=Path, help="counters that llvm-profdata has merged, in place of the build's")
    parser.add_argument("--html", action="store_true", help="write the build's html, too")
    parser.add_argument("--missing", action="store_true", help="print the lines that did not run, and check nothing")
    parser.add_argument("--branches", action="store_true", help="with --missing: and what no condition was")
    parser.add_argument("--draft", action="store_true", help="print entries of uncovered.toml for lines it lacks")
    parser.add_argument("--table", action="store_true", help="print the table of docs/dev/coverage.md, and read no figures")
    options = parser.parse_args()

    if options.table:
        print(known.table(known.entries(known.LIST.read_text())))
        return 0
    profile = options.profile or options.build / "all.profdata"
    if not options.profile:
        figures.merged(options.build / "counters", profile)
    sources = figures.read(ROOT, options.build, profile)
    if options.missing:
        print_missing(sources, options.chosen, options.branches)
        return 0
    if options.draft:
        core = {name: source for name, source in sources.items() if name.split("/")[0] in CORE}
        print(known.drafted(core, known.check(known.entries(known.LIST.read_text()), core)[1]))
        return 0
    if options.html:
        write_html(options.build, profile, options.build / "html")
        print(f"coverage: {options.build / 'html/index.html'} shows the lines and branches")
    enough, listed = tell(sources), check(sources)
    return 0 if enough and listed else 1


if __name__ == "__main__":
    sys.exit(main())
