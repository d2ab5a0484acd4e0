# The pages that `hakmem help` prints.

# print_text FUNCTION: prints what the function prints. If that fails, says why and ends with 1, as the tools in python/
# do. Where the reader of a pipe is gone, it ends by the signal.
print_text()
{
    local text reason status=0
    text=$("$1")
    { reason=$(printf '%s\n' "$text" 2>&1 >&3) || status=$?; } 3>&1
    if ((status == 1)); then
        die "the output cannot be written: ${reason##*: }"
    fi
    ((status == 0)) || exit "$status"
}

usage()
{
    cat <<'END'
usage: hakmem [--yes] COMMAND [ARGUMENTS]

  build [FLAVOR]             build the library and its programs
  run [OPTIONS] [--] PROGRAM [ARGUMENTS]
                             run PROGRAM with HAKMEM in place of its malloc
  test [OPTIONS] [CTEST ARGUMENTS]
                             build and test: ten minutes, or everything with --all
  test --soak MINUTES        run everything in rotation with settings and seeds by chance
  fuzz TARGET                look for inputs that break a part of it
  shell [-- PROGRAM]         a shell, or PROGRAM, with all that a developer needs installed and on the PATH
  wheel [FOLDER]             make a Python wheel of the tools with the library inside
  bench, compare, peers, trace
                             measure allocators side by side, record and replay allocations
  stats PID, explain PID, map PID
                             where a running process's memory is: figures, every resident byte, a drawing
  top PID                    watch it on a terminal, or print one screen (--once)
  serve PID... [--port N]    watch them in a browser, from Prometheus, as JSON
  ps                         list the processes that run on HAKMEM
  advise PID, advise -- PROGRAM
                             what HAKMEM saves there or would save, and which options to set, measured
  leaks -- PROGRAM           run PROGRAM and tell which of its memory nothing points to at its end
  heap FILE...               what a heap profile says: top sites, tree, comparison, flame graph
  guard FILE...              what errors guarded blocks have found, with functions and source lines
  doctor [PID]               whether HAKMEM serves a process, or would here, and what to do where not
  amalgamate [FOLDER]        make the one-file source, hakmem.c and hakmem.h
  crates [FOLDER]            make the Rust crates hakmem and hakmem-sys
  package [FOLDER]           make everything that users install, with checksums
  completion SHELL           make bash, zsh or fish complete commands, PIDs and names
  help [COMMAND]             print this, or the page of COMMAND (so does 'hakmem COMMAND --help')
  --version                  print HAKMEM's version

PID is a process's number or its name. Debian packages that a command lacks are named. Root installs them: on a terminal
after a question, which --yes answers.

Exit status: 0 done; 1 failed; 2 the command line is wrong. 'run', 'shell', 'leaks', 'trace record' and 'peers run' end
as PROGRAM does, or with 126 where it cannot be run, 127 where it is not there.
END
}

usage_build()
{
    cat <<'END'
usage: hakmem build [FLAVOR]

Build into build/FLAVOR: the libraries in lib/, the programs in bin/. Of a checkout whose build/ cannot be written to,
or whose path has a blank, a colon or a #, the build goes to ~/.cache/hakmem, or where XDG_CACHE_HOME says. A message
says so.

  FLAVOR                     release (the default), debug, asan (with ubsan), ubsan alone, tsan, cycles (with the cycle
                             profile), clang, aarch64, coverage (counts what runs: see 'hakmem test --coverage')
END
}

usage_run()
{
    cat <<'END'
usage: hakmem run [OPTIONS] [--] PROGRAM [ARGUMENTS]

Build the library, where it is not built, and run PROGRAM with HAKMEM in place of its malloc. Its exit status is kept.
Where HAKMEM cannot take effect (a static or set-user-id program, one for another machine), a line on standard error
says so, and the program runs without it.

  --stats[=text|json]        print statistics at its end
  --profile                  print a cycle profile at its end (builds the flavor that carries it)
  --secure                   use the hardened library, libhakmem-secure.so (docs/hardening.md)
  --heap-profile FILE        write a heap profile at its end, as pprof and 'hakmem heap' read it
  --budget FIGURE=MOST,...   end with 1 where it takes more: peak, heap, allocations, allocated, inuse, leaked
  --markdown FILE            append the budget's figures to FILE; without it, to the summary of a job of GitHub Actions
  --set NAME=VALUE           any option of docs/options.md, with or without HAKMEM_ before it
END
}

usage_test()
{
    cat <<'END'
usage: hakmem test [--all] [--keep-going] [--flavor FLAVOR]... [--yes] [CTEST ARGUMENTS]
       hakmem test --coverage [--yes] [CTEST ARGUMENTS]
       hakmem test [--flavor FLAVOR]... --soak MINUTES [--seed N] [--only KIND]

Build and test, in stages: unit, behaviour, sanitizers, cost, tools. The first stage that fails is the last. Without
--all this takes about ten minutes on two processors: the flavors release, asan (which is ubsan, too) and tsan, without
the tests that take long. CTEST ARGUMENTS, such as -R REGEX or -L LABEL, go to ctest, which chooses among all tests of
all flavors, or of those named; then there are no stages.

  --all                      every test of every flavor, about half an hour: what continuous integration runs
  --quick                    as without --all, of release only
  --keep-going               run the other stages, too, when one has failed
  --coverage                 build the flavor coverage, run its tests, print which lines and branches of src/ ran, write
                             them to build/coverage/html, and fail if a line did not run that is not known
  --flavor FLAVOR            this flavor in place of those (see 'hakmem build --help'); several times for several
  --yes                      install missing Debian packages without asking
  --soak MINUTES             run everything in rotation with settings and seeds by chance, memory and hangs watched
  --seed N, --only KIND      that run of the soak again
END
}

usage_fuzz()
{
    cat <<'END'
usage: hakmem fuzz TARGET [--minutes N] [ARGUMENTS]

Look for inputs that break TARGET for N minutes (10). What is found stays in build/fuzz/found.

  calls, maps, options, procfs, recording, trace
                             targets of libFuzzer, which gets ARGUMENTS; a file is tried alone
  heap, image, info, jit, linking, report, symbols
                             the Python readers; ARGUMENTS are --seed N and --number N, or files
END
}

usage_shell()
{
    cat <<'END'
usage: hakmem shell [-- PROGRAM [ARGUMENTS]]

Install what building, testing and measuring need, build the flavor release, and start a shell. Its PATH begins with
this checkout, build/venv/bin and build/release/bin, so that hakmem, python, pytest and the built programs are found by
their names. Its prompt begins with (hakmem), and it completes hakmem's commands. It ends with exit.

  -- PROGRAM [ARGUMENTS]     run PROGRAM in place of the shell, and end as it does
END
}

usage_wheel()
{
    cat <<'END'
usage: hakmem wheel [FOLDER]

Make a Python wheel of the tools with the library inside, for this machine. 'hakmem package --only wheels' makes those
for every machine.

  FOLDER                     where it goes (build/wheel)
END
}

usage_amalgamate()
{
    cat <<'END'
usage: hakmem amalgamate [FOLDER]

Make the library's one-file source: hakmem.c, and hakmem.h, which it includes.

  FOLDER                     where it goes (build/onefile)
END
}

usage_crates()
{
    cat <<'END'
usage: hakmem crates [FOLDER]

Make the Rust crates hakmem and hakmem-sys, with the one-file source inside.

  FOLDER                     where they go (build/crates)
END
}

usage_package()
{
    cat <<END
usage: hakmem package [--only KIND]... [FOLDER]

Make everything that users install, with SHA256SUMS beside it. The same commit gives the same bytes.

  --only KIND                this kind and what it needs; several times for several:
                             $(sed -n 's/^    Kind("\([a-z]*\)".*/\1/p' "$root/tools/package/kinds.py" | paste -sd ' ')
  FOLDER                     where it goes (dist)
END
}

usage_help()
{
    cat <<'END'
usage: hakmem help [COMMAND [SUBCOMMAND]]

Print what the commands are, or the page of one.
END
}

# Whether the words ask for help: COMMAND --help, or GROUP SUBCOMMAND --help. Words after a program are the program's.
asks_for_page()
{
    local word=${2:-}
    case $1 in
    bench | peers | trace)
        if [[ -n $word && $word != -* ]]; then
            word=${3:-}
        fi
        ;;
    esac
    [[ $word == --help || $word == -h ]]
}

# print_page COMMAND [SUBCOMMAND]
print_page()
{
    case $1 in
    amalgamate | build | crates | fuzz | help | package | run | shell | test | wheel) print_text "usage_$1" ;;
    advise | bench | compare | completion | doctor | explain | guard | heap | leaks | map) look_with base "$@" --help ;;
    peers | ps | serve | stats | top | trace) look_with base "$@" --help ;;
    *) refuse "unknown command '$1'" ;;
    esac
}
