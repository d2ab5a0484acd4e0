"""`hakmem leaks`: what a program has lost at its end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hakmem import markdown, starter, writing
from hakmem.completion import complete_program
from hakmem.extras import extra
from hakmem.parameters import FILE, File, debug_dir_option

if TYPE_CHECKING:
    from hakmem.supervise import Ending


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--suppress", "files", multiple=True, type=File(path_type=Path), metavar="FILE",
              help="Known leaks, in the format of LeakSanitizer or of valgrind.")
@click.option("--reachable", is_flag=True, help="Show the sites of blocks that are still reachable, too.")
@click.option("--children", is_flag=True, help="Look at the processes that PROGRAM starts, too.")
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="Sites to show.")
@click.option("--output", type=FILE, metavar="FILE", help="Write the report to FILE, not to standard error.")
@click.option("--json", "as_json", type=FILE, metavar="FILE", help="Write the whole report to FILE as JSON.")
@click.option("--pprof", type=FILE, metavar="FILE", help="Write the lost blocks as a profile, for `hakmem heap`.")
@click.option("--markdown", "summary", type=FILE, metavar="FILE",
              help="Append a summary to FILE. Default: the file that GITHUB_STEP_SUMMARY names.")
@click.option("--exit-code", type=click.IntRange(0, 125), default=1, show_default=True, metavar="STATUS",
              help="Exit status if something is lost and PROGRAM ended with 0.")
@debug_dir_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="PROGRAM [ARGUMENTS]...",
                shell_complete=complete_program)
@click.pass_context
def leaks(ctx: click.Context, files: tuple[Path, ...], reachable: bool, children: bool, number: int,
          output: Path | None, as_json: Path | None, pprof: Path | None, summary: Path | None, exit_code: int,
          debug_folders: tuple[Path, ...], command: tuple[str, ...]) -> None:
    """Run PROGRAM and tell which blocks are lost at its end: in use, with nothing pointing to them.

    The command records every allocation with its stack. At PROGRAM's end, by return, _exit or a signal, it holds the
    threads and searches the memory for pointers. Exit status: PROGRAM's own if that is not 0; 1 if something is lost;
    else 0."""
    environment = {**os.environ, "HAKMEM_RECORD_ALL": "1"}
    # numpy's matrix library is not used here. Its threads would take time to start, and a fork does not copy them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with extra("leaks", "hakmem leaks"):
        from hakmem.leaks.report import judge, look
    from hakmem.leaks.show import data_of, markdown_of, text_of
    from hakmem.leaks.suppressions import read_suppressions
    from hakmem.live.memory import LiveError
    from hakmem.run import refuse_unwritable
    from hakmem.supervise import Forbidden, Supervisor, shell_status

    suppressions = read_suppressions(files)
    for option, path in (("--output", output), ("--json", as_json), ("--pprof", pprof), ("--markdown", summary)):
        if path:
            refuse_unwritable(path, option)
    plan = starter.plan(["--", *command])
    if plan.why:
        raise click.ClickException(f"hakmem leaks sees nothing of this program: {plan.why}")
    seen, problems = [], []

    def at_end(ending: Ending) -> None:
        try:
            seen.append(look(ending))
        except LiveError as error:
            problems.append(f"{command[0]}: {error}" if ending.pid == supervisor.root else str(error))

    supervisor = Supervisor(plan.command, environment, at_end, children)
    try:
        status = supervisor.run()
    except Forbidden as error:
        raise click.ClickException(str(error)) from error
    reports = [judge(one, suppressions, debug_folders, reachable) for one in seen]
    lines = [line for report in reports for line in [*text_of(report, number), ""]][:-1]
    notes = dict.fromkeys(note for report in reports for note in report.notes)
    lines += [
        f"hakmem leaks: {note}" for note in (*problems, *(notes if any(report.sites for report in reports) else ()))
    ]
    write(output, "\n".join(lines) + "\n")
    if as_json:
        write(as_json, json.dumps([data_of(report) for report in reports], indent=1) + "\n")
    if pprof:
        from hakmem.heap.file import write_profile
        for report in reports:
            write_profile(report.profile, pprof if len(reports) == 1 else pprof.with_name(f"{pprof.name}.{report.pid}"))
    markdown.put(summary, [line for report in reports for line in markdown_of(report, number)])
    own = shell_status(status)
    lost = any(report.leaks for report in reports)
    failed = not any(one.pid == supervisor.root for one in seen)
    ctx.exit(own or (exit_code if lost else int(failed)))


def write(output: Path | None, text: str) -> None:
    """Writes the report to a file or to standard error."""
    if output is None:
        click.echo(text, nl=False, err=True)
        return
    try:
        writing.write_whole(output, text.encode())
    except OSError as error:
        raise click.ClickException(f"{output}: cannot be written: {error.strerror}") from error
