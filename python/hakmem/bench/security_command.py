"""The command `hakmem bench security`: what each allocator does with misuse."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from hakmem.bench import machine, misuse
from hakmem.bench.allocators import check_names, parse_pair
from hakmem.bench.table import print_table
from hakmem.parameters import split_names
from hakmem.peers import PeersError, load_peers
from hakmem.screen import make_console

FORMAT = "hakmem-security 1"
# The peers that claim to stop misuse.
PEERS = ("hardened", "mimalloc-secure", "snmalloc-checks", "scudo")


def find_builds(add: Sequence[str]) -> dict[str, misuse.Build]:
    """Returns {name: Build} of all builds and allocators that are there."""
    try:
        found = {build.name: build for build in misuse.own_builds()}
    except misuse.SuiteError as error:
        raise click.ClickException(str(error)) from error
    found["glibc"] = misuse.Build("glibc", None)
    try:
        found.update(
            {name: misuse.Build(name, peer.library, dict(peer.setting)) for name, peer in load_peers().items()})
    except PeersError as error:
        click.echo(f"hakmem: the peers are left out: {error.message}", err=True)
    for text in add:
        name, library = parse_pair(text, "--add", "NAME=LIBRARY")
        if not Path(library).is_file():
            raise click.ClickException(f"{name}: there is no library {library}")
        found[name] = misuse.Build(name, Path(library).absolute())
    return found


def choose_builds(found: dict[str, misuse.Build], names: Sequence[str], add: Sequence[str]) -> list[misuse.Build]:
    """Returns the named builds, or HAKMEM's, glibc and the hardened peers; tells which of those are absent."""
    if names:
        check_names(names, found)
        return [found[name] for name in names]
    absent = [name for name in PEERS if name not in found]
    if absent:
        click.echo(f"hakmem: not built and left out: {', '.join(absent)} (./hakmem peers build "
                   f"{' '.join(absent)})", err=True)
    added = {text.partition("=")[0] for text in add}
    others = [name for name, build in found.items() if name in PEERS or name in added or build.library is None]
    return [*(build for build in misuse.own_builds()), *(found[name] for name in others)]


def choose_cases(patterns: Sequence[str]) -> list[misuse.Case]:
    """Returns the cases whose kind matches a pattern; all without patterns."""
    cases = [case for case in misuse.load_cases()
             if not patterns or any(fnmatch.fnmatch(case.kind, pattern) for pattern in patterns)]
    if not cases:
        raise click.UsageError(f"no such kind: {', '.join(patterns)} (there are {', '.join(misuse.load_kinds())})")
    return cases


def measure(builds: Sequence[misuse.Build], cases: Sequence[misuse.Case], rounds: int) -> dict[str, dict[str, str]]:
    """Runs the cases. Returns {build: {case: outcome}}."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="hakmem-misuse-") as folder:
        try:
            programs = misuse.compile_suite(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            raise click.ClickException(f"the suite's programs are not compiled: {error}") from error
        for build in builds:
            with click.progressbar(cases, label=build.name, file=sys.stderr) as bar:
                try:
                    results[build.name] = misuse.run_suite(programs, build, cases, rounds, partial(bar.update, 1))
                except (misuse.SuiteError, subprocess.TimeoutExpired) as error:
                    raise click.ClickException(str(error)) from error
    return results


def print_results(results: dict[str, dict[str, str]], by_case: bool) -> None:
    """Prints the tables of outcomes."""
    console, names = make_console(), list(results)
    if by_case:
        cases = dict.fromkeys(case for outcomes in results.values() for case in outcomes)
        print_table(console, "Cases", ["case", *names],
                    [[case, *(outcomes[case] for outcomes in results.values())] for case in cases],
                    left=range(len(names) + 1))
    parts = {name: misuse.summarize(outcomes) for name, outcomes in results.items()}
    kinds = dict.fromkeys(kind for part in parts.values() for kind in part)
    print_table(console, "Kinds", ["kind", *names],
                [[kind, *(part[kind] for part in parts.values())] for kind in kinds], left=range(len(names) + 1))
    sums = {name: misuse.totals(outcomes) for name, outcomes in results.items()}
    print_table(console, "Totals", ["", *names],
                [["stopped", *(f"{stopped} of {of}" for stopped, _, of in sums.values())],
                 ["kept from harm", *(f"{kept} of {of}" for _, kept, of in sums.values())]])
    for word, about in misuse.OUTCOMES.items():
        click.echo(f"{word:<9}{about}")


def record(results: dict[str, dict[str, str]], builds: Sequence[misuse.Build]) -> None:
    """Writes peers.txt and the page, with the columns that are not HAKMEM's builds."""
    own = {build.name for build in misuse.own_builds()}
    peers = {name: peer.version for name, peer in load_peers().items()}
    libc = machine.describe_machine()["libc"]
    versions = [libc if build.name == "glibc" else f"{build.name} {peers.get(build.name, '')}".strip()
                for build in builds if build.name not in own]
    columns = {name: outcomes for name, outcomes in results.items() if name not in own}
    misuse.write_table(misuse.PEERS, columns, (", ".join(versions), "hakmem bench security --record writes it."))
    misuse.TABLE.write_text(misuse.page())
    click.echo(f"hakmem: written: {misuse.PEERS}, {misuse.TABLE}", err=True)


@click.command()
@click.option("--allocators", metavar="A,B,...",
              callback=split_names,
              help="These only: default, switch, secure (our builds), glibc, any peer.")
@click.option("--add", multiple=True, metavar="NAME=LIBRARY", help="One more allocator: any library to preload.")
@click.option("--kinds", "patterns", multiple=True, metavar="PATTERN", help="Kinds of errors whose name matches.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="Runs of each case. If they differ, all outcomes are shown.")
@click.option("--cases", "by_case", is_flag=True, help="Print each case, not only kinds.")
@click.option("--json", "as_json", is_flag=True, help="Print each case as JSON.")
@click.option("--record", "write", is_flag=True, help="Write the others' columns of docs/dev/misuse-table.md.")
def security(allocators: list[str], add: tuple[str, ...], patterns: tuple[str, ...], rounds: int, by_case: bool,
             as_json: bool, write: bool) -> None:
    """Misuse memory in every way of the misuse suite, and tell what each allocator does about it."""
    if not misuse.SUITE.is_dir():
        raise click.ClickException(f"only a checkout has the misuse suite: there is no folder {misuse.SUITE}")
    if write and patterns:
        raise click.UsageError("--record wants every kind")
    builds = choose_builds(find_builds(add), allocators, add)
    results = measure(builds, choose_cases(patterns), rounds)
    if as_json:
        told = {
            "format": FORMAT, "machine": machine.describe_machine(), "commit": machine.describe_commit(), "libraries": {
                build.name: {"library": str(build.library or ""), "setting": build.setting} for build in builds
            }, "outcomes": results
        }
        click.echo(json.dumps(told, indent=1))
    else:
        print_results(results, by_case)
    if write:
        record(results, builds)
