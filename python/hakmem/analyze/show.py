"""The texts of `hakmem advise`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hakmem.analyze.process import WHAT, Findings
from hakmem.analyze.options import CHOSEN, SUBJECT, SYSTEM, Outcome, Part
from hakmem.bench.allocators import again
from hakmem.bench.verdict import ROUNDS_LEAST, change_text, percent
from hakmem.live import words
from hakmem.phrases import plural
from hakmem.report.figures import listed
from hakmem.units import bytes_column

if TYPE_CHECKING:
    from hakmem.analyze.foreign import Foreign
    from hakmem.processes import Process
    from hakmem.screen import Console

NAMES = {"time": "time", "cpu": "CPU time", "peak_rss": "peak memory", "mean_rss": "memory over time",
         "end_rss": "memory held at the end"}


def command_text(process: Process | None) -> str:
    """Returns a process's command line to be typed; a server that writes a sentence there shows no arguments."""
    if process is None or not process.words:
        return "PROGRAM"
    return shlex.join(process.words) if " " not in process.words[0] else f"{process.name} ARGUMENTS"


def try_it(settings: Iterable[str], command: str) -> str:
    """Returns the command that runs a program on HAKMEM with settings."""
    options = "".join(f"--set {setting} " for setting in settings)
    return f"hakmem run {options}-- {command}"


# ---- A program ----


def system_text(part: Part, settings: str = SUBJECT) -> str:
    """Returns how HAKMEM compares with the system's malloc, as far as the figures tell."""
    if part.rounds < ROUNDS_LEAST:
        return (f"{part.rounds} {'round is' if part.rounds == 1 else 'rounds are'} too few to tell a difference from "
                f"the noise: {ROUNDS_LEAST} are enough (--time MINUTES).")
    told, same = [], []
    for figure in ("time", "peak_rss", "mean_rss", "end_rss"):
        found, side = part.range(figure, settings, SYSTEM)
        if found and side:
            told.append(f"{change_text(found, 'less' if side < 0 else 'more')} {NAMES[figure]}")
        elif found:
            same.append(NAMES[figure])
    text = f"HAKMEM takes {listed(told)} than the system's malloc" if told else ""
    if same:
        noise = max(part.compared(figure).noise for figure in NAMES if NAMES[figure] in same)
        text += f"{'; ' if told else 'HAKMEM and the system malloc '}"
        text += f"no difference in {listed(same)} shows above the noise of {percent(noise)} %" if told else \
            f"cannot be told apart in {listed(same)} within the noise of {percent(noise)} %"
    return f"{text}." if text else "Nothing could be compared."


def advice_text(outcome: Outcome) -> str:
    """Returns which options to set, or that none helps."""
    if not outcome.first.whole or outcome.first.rounds < ROUNDS_LEAST:
        return "No option can be advised from so few rounds."
    if not outcome.chosen:
        return "Set nothing: no option that was tried is better than the defaults by more than the noise."
    what = listed([f"{setting} (for {NAMES[figure]})" for setting, figure in outcome.chosen.items()])
    second = outcome.second
    if second is None or not second.whole or second.rounds < ROUNDS_LEAST:
        return f"{what} seemed to help, and was not measured again: stopped."
    if not outcome.holds:
        return f"Set nothing: {what} seemed to help, and did not when measured again, or cost time."
    seen = []
    for figure in ("time", "peak_rss", "mean_rss"):
        found, side = second.range(figure, CHOSEN)
        if found and side:
            seen.append(f"{change_text(found, 'less' if side < 0 else 'more')} {NAMES[figure]}")
    noise = second.compared("time").noise
    if not second.range("time", CHOSEN)[1]:
        unlike = f"; in time no difference shows above the noise of {percent(noise)} %"
    else:
        unlike = ""
    together = ", together" if len(outcome.chosen) > 1 else ""
    return f"Set {what}: measured again{together}, {listed(seen)} than the defaults{unlike}."


def settings_of(outcome: Outcome) -> list[str]:
    """Returns the advised settings."""
    return list(outcome.chosen) if outcome.holds else []


def print_program(console: Console, outcome: Outcome, command: Sequence[str]) -> None:
    """Prints the outcome for a program."""
    from hakmem.bench.table import memory_text, print_table, seconds_text

    texts = {"time": seconds_text, "cpu": seconds_text}
    for part, title in ((outcome.first, "One option at a time"), (outcome.second, "What is advised, measured again")):
        if part is None or not part.rounds:
            continue
        rounds = plural(part.rounds, "round")
        lines = []
        for name in part.result["allocators"]:
            if name == again(SUBJECT):
                continue
            cells = []
            for figure in NAMES:
                middle = part.compared(figure).middle(name)
                cells.append("-" if middle is None else texts.get(figure, memory_text)(middle))
            shown = {SYSTEM: "the system's malloc", SUBJECT: "HAKMEM", CHOSEN: " ".join(outcome.chosen)}
            lines.append([shown.get(name, name), *cells])
        print_table(console, f"{title}: medians of {rounds}", ["", *NAMES.values()], lines)
    for text in (system_text(outcome.first), advice_text(outcome)):
        click.echo(click.style(text, bold=True))
    if outcome.left_out:
        click.echo(f"There was no time for {', '.join(outcome.left_out)} (--time MINUTES).")
    click.echo(f"Run it: {try_it(settings_of(outcome), shlex.join(command))}")


def program_dict(outcome: Outcome, command: Sequence[str]) -> dict[str, object]:
    """Returns the outcome for a program as values for JSON."""
    def part(one: Part | None) -> dict[str, object] | None:
        if one is None:
            return None
        return {"rounds": one.rounds, "samples": one.result["samples"], "noise": {
            figure: one.compared(figure).noise for figure in NAMES}}

    return {"kind": "program", "command": list(command), "first": part(outcome.first), "second": part(outcome.second),
            "advice": [{"setting": setting, "for": outcome.chosen[setting]} for setting in settings_of(outcome)],
            "left_out": outcome.left_out, "summary": [system_text(outcome.first), advice_text(outcome)]}


# ---- A process ----


def process_text(found: Findings) -> list[str]:
    """Returns the sentences on a process on HAKMEM."""
    live, rss = found.parts["live"], found.rss
    lines = [f"{words.share(live, rss) or '0 %'} of its {bytes_column(rss)} resident are blocks that the program "
             f"holds, {words.share(found.parts['free'], rss) or '0 %'} are free memory that HAKMEM could give back."]
    for number, advice in enumerate(found.advice):
        lines.append(f"{'Set' if number == 0 else 'And'} {advice.setting}: {advice.why}. It would save up to "
                     f"{bytes_column(advice.saves)}.")
    if not found.advice:
        lines.append("No option would save at least 4 MiB and 5 % of RSS.")
        if live > rss / 2:
            lines.append("What the program holds is its own. If that grows, hakmem heap --start PID, and later "
                         "hakmem heap PID, say who allocated it.")
    return lines


def print_process(console: Console, found: Findings, process: Process | None) -> None:
    """Prints the findings on a process on HAKMEM."""
    from hakmem.bench.table import print_table

    print_table(console, found.title, ["", "bytes", "", "of RSS", "what it is"], [
        [name.replace("_", " "), f"{found.parts[name]:,}", bytes_column(found.parts[name]),
         words.share(found.parts[name], found.rss), what] for name, what in WHAT.items()], left=(0, 4))
    doing = "it asked for no memory" if found.idle else ", ".join(
        f"{rate:,.0f} {name.replace('_', ' ')}" for name, rate in found.rates.items() if rate) + " a second"
    click.echo(f"In the {found.seconds:.1f} s in which it was watched: {doing}.")
    for line in process_text(found):
        click.echo(click.style(line, bold=True))
    command = command_text(process)
    settings = [advice.setting for advice in found.advice]
    if settings:
        click.echo(f"Try it: {try_it(settings, command)}")
    click.echo(f"Against the system's malloc, if it ends by itself: hakmem analyze --time 3 -- {command}")


def process_dict(found: Findings) -> dict[str, object]:
    """Returns the findings on a process on HAKMEM as values for JSON."""
    return {"kind": "hakmem", **asdict(found), "summary": process_text(found)}


# ---- A process on another malloc ----


def foreign_text(found: Foreign) -> list[str]:
    """Returns the sentences on a process on another malloc."""
    lines = [f"Process {found.pid} runs on {found.server}: {bytes_column(found.rss)} resident, of which it "
             f"shares {bytes_column(found.private_dirty)} with nobody and has written to. It has "
             f"{plural(found.threads, 'thread')}."]
    if found.server == "glibc":
        heaps = f"the program break ({bytes_column(found.brk_dirty)})"
        if found.arenas:
            heaps += f" and {plural(found.arenas, 'heap')} of threads' arenas"
        lines.append(f"glibc cuts blocks from {heaps}.")
        if found.free_resident == 0:
            lines.append("No whole page of that is free.")
        elif found.free_resident is not None:
            unknown = len(found.heaps) - len(found.walked)
            more = f"; {plural(unknown, 'heap')} could not be read to the end" if unknown else ""
            asleep = " (if the process sleeps then, with HAKMEM_PURGE_THREAD=always)" if found.threads == 1 else ""
            lines.append(
                f"{bytes_column(found.free_resident)} of that are whole free pages which glibc keeps "
                f"({words.share(found.free_resident, found.rss) or '0 %'} of RSS){more}. HAKMEM gives such pages "
                f"back half a second after their last use{asleep}.")
        else:
            lines.append("How much of that is free could not be read.")
    else:
        lines.append("How much of that is free cannot be seen from outside.")
    lines += [f"{note}." for note in found.notes]
    lines.append(f"HAKMEM cannot be preloaded into it: {found.obstacle}." if found.obstacle else
                 "Only a run shows what HAKMEM would take.")
    return lines


def print_foreign(_: Console, found: Foreign, process: Process | None, unit: str | None) -> None:
    """Prints the findings on a process on another malloc."""
    for line in foreign_text(found):
        click.echo(line)
    if found.obstacle:
        return
    command = command_text(process)
    click.echo(f"Try it: hakmem run -- {command}")
    click.echo(f"Measure it, if it ends by itself: hakmem analyze --time 3 -- {command}")
    if unit:
        from hakmem import paths

        click.echo(f"It is the service {unit}: systemctl edit {unit}, with the lines [Service] and "
                   f"Environment=LD_PRELOAD={paths.hakmem_library()}")


def foreign_dict(found: Foreign) -> dict[str, object]:
    """Returns the findings on a process on another malloc as values for JSON."""
    return {"kind": "other", **asdict(found), "free_resident": found.free_resident, "arenas": found.arenas,
            "summary": foreign_text(found)}
