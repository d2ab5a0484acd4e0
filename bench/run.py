#!/usr/bin/env python3
"""Runs the benchmark programs on several allocators, interleaved, and compares them.

Each round runs every row on every allocator, in an order that rotates from round to round; figures are compared within
a round, and the medians of those ratios are reported. Results go to bench/results/DATE-NAME.json and .csv.
"""

import argparse
import csv
import datetime
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import summary
from rows import LIBRARIES, PEERS, ROWS, make_files

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
PRIVATE_VARIABLE = re.compile(r"^(HAKMEM_|BENCH_|LD_|MALLOC_|MIMALLOC_|GLIBC_TUNABLES)")
IDLE_MS = 1200


def read_first_line(path, pattern=r"(.*)"):
    try:
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
        return match[1].strip() if match else None
    except OSError:
        return None


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def describe_machine():
    return {
        "cpu": read_first_line("/proc/cpuinfo", r"^model name\s*: (.*)$"),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": read_first_line("/proc/meminfo", r"^MemTotal:\s*(.*)$"),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": read_first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_before": os.getloadavg()[0],
    }


def describe_allocator(name, library):
    entry = {"library": str(library) if library else None}
    if name == "glibc":
        entry["version"] = " ".join(platform.libc_ver())
    elif name in PEERS and library == LIBRARIES / PEERS[name][1]:
        package = PEERS[name][0]
        entry["version"] = f"{package} {output_of('dpkg-query', '-W', '-f', '${Version}', package)}"
    else:
        entry["sha256"] = hashlib.sha256(library.read_bytes()).hexdigest()
    return entry


def choose_allocators(options):
    """{name: library or None}, in the order of the tables."""
    libraries = {"glibc": None}
    libraries.update((name, LIBRARIES / file) for name, (_, file) in PEERS.items())
    libraries["hakmem"] = options.build / "lib/libhakmem.so"
    if options.allocators:
        unknown = [name for name in options.allocators if name not in libraries]
        if unknown:
            sys.exit(f"run.py: no such allocator: {', '.join(unknown)} (there are {', '.join(libraries)})")
        libraries = {name: libraries[name] for name in options.allocators}
    for extra in options.add:
        name, separator, path = extra.partition("=")
        if not separator:
            sys.exit(f"run.py: --add wants NAME=LIBRARY, not {extra}")
        libraries[name] = Path(path).resolve()
    for name, library in libraries.items():
        if library and not library.exists():
            sys.exit(f"run.py: {name}: {library} is not there (./hakmem build, or tools/packages-bench.txt)")
    if options.subject not in libraries:
        sys.exit(f"run.py: the subject {options.subject} is not among the allocators")
    return libraries


def choose_rows(options):
    if not options.rows:
        return [row for row in ROWS if row.group == "main" or options.more]
    chosen = [row for row in ROWS if any(re.search(pattern, row.name) for pattern in options.rows)]
    if not chosen:
        sys.exit(f"run.py: no row matches; there are {', '.join(row.name for row in ROWS)}")
    return chosen


def scale_command(row, factor):
    """The row's command with its amount of work, the first argument of a program that reports a rate, scaled."""
    command = list(row.command)
    if row.kind == "rate" and factor != 1:
        place = {"bench_fixed": 3, "bench_tiny_mt": 2, "bench_producer_consumer": 2}.get(command[0], 1)
        command[place] = str(max(1, round(int(command[place]) * factor)))
    return command


def parse_pairs(line):
    pairs = dict(pair.split("=", 1) for pair in line.split())
    return {key: float(value) if re.fullmatch(r"-?[\d.]+", value) else value for key, value in pairs.items()}


def run_once(row, library, options, files, idle):
    """One run's figures. Those of the program's own report are of its timed part; the launcher's are of all."""
    command = [argument.replace("{files}", str(files)) for argument in scale_command(row, options.scale)]
    program = options.build / "bin" / command[0]
    if row.kind == "rate":
        command[0] = str(program)
    env = {name: value for name, value in os.environ.items() if not PRIVATE_VARIABLE.match(name)}
    env["LC_ALL"] = "C"
    env.update(setting.split("=", 1) for setting in options.env)
    if idle:
        env["BENCH_IDLE_MS"] = str(IDLE_MS)
    report = files / "measure.txt"
    launcher = [str(options.build / "bin/bench_measure"), str(report), str(options.warm), str(library or "")]
    done = subprocess.run(launcher + command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"run.py: {shlex.join(command)} on {library or 'glibc'}: status {done.returncode}\n{done.stderr}")
    whole = parse_pairs(report.read_text())
    sample = {"peak_rss_kib": whole["peak_rss_kib"]}
    if row.kind == "memory":
        sample.update(wall_s=whole["wall_s"], cpu_s=whole["user_s"] + whole["sys_s"],
                      soft_faults=whole["soft_faults"], hard_faults=whole["hard_faults"])
    else:
        own = parse_pairs(re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)[1])
        sample.update(ops=own["ops"], ops_per_s=own["ops_per_s"], ns_per_op=own["ns_per_op"],
                      cpu_s=own["user_s"] + own["sys_s"], soft_faults=own["soft_faults"],
                      hard_faults=own["hard_faults"], rss_delta_kib=own["rss_delta_kib"])
        if idle:
            sample["rss_idle_kib"] = own["rss_idle_kib"]
        if row.name.startswith("larson"):
            # It runs for a time, not for an amount: its CPU time says something by operation only.
            sample["cpu_s"] /= own["ops"]
    return sample


def measure(rows, allocators, options, files):
    samples = []
    names = list(allocators)
    for number in range(options.rounds):
        for place, row in enumerate(rows):
            turn = (number + place) % len(names)
            for name in names[turn:] + names[:turn]:
                sample = run_once(row, allocators[name], options, files, idle=number == 0 and options.idle)
                samples.append({"row": row.name, "allocator": name, "round": number, **sample})
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr, flush=True)
    return samples


def write_results(result, options):
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"{result['date'][:10]}-{options.name}"
    stem.with_name(stem.name + ".json").write_text(json.dumps(result, indent=1) + "\n")
    columns = list(dict.fromkeys(key for sample in result["samples"] for key in sample))
    with open(stem.with_name(stem.name + ".csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(result["samples"])
    return stem


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="run", help="name of the result files")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", action="append", metavar="PATTERN", help="rows whose name matches (repeatable)")
    parser.add_argument("--more", action="store_true", help="the further rows, too")
    parser.add_argument("--allocators", type=lambda text: text.split(","), metavar="A,B,...", help="default: all")
    parser.add_argument("--add", action="append", default=[], metavar="NAME=LIBRARY", help="one more allocator")
    parser.add_argument("--subject", default="hakmem", help="the allocator that is compared with the others")
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build/release", help="build folder")
    parser.add_argument("--scale", type=float, default=1, help="factor on the rows' amount of work")
    parser.add_argument("--warm", type=int, default=1024, metavar="MIB", help="memory to touch before each run")
    parser.add_argument("--no-idle", dest="idle", action="store_false", help="leave out the memory of idle programs")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for the programs")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the result files")
    parser.add_argument("--dry", action="store_true", help="write no files")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse_options()
    allocators, rows = choose_allocators(options), choose_rows(options)
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["bench/run.py", *sys.argv[1:]]),
        "commit": output_of("git", "describe", "--always", "--dirty"),
        "machine": describe_machine(),
        "subject": options.subject,
        "rounds": options.rounds,
        "scale": options.scale,
        "env": options.env,
        "allocators": {name: describe_allocator(name, library) for name, library in allocators.items()},
        "rows": {row.name: shlex.join(scale_command(row, options.scale)) for row in rows},
    }
    with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as folder:
        make_files(folder)
        result["samples"] = measure(rows, allocators, options, Path(folder))
    result["machine"]["load_after"] = os.getloadavg()[0]
    result["summary"] = summary.summarize(result["samples"], list(result["rows"]), list(allocators), options.subject)
    print(summary.format_result(result))
    if not options.dry:
        print(f"written: {write_results(result, options)}.json and .csv")


if __name__ == "__main__":
    main()
