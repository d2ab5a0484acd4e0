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

Run
  run [OPTIONS] [--] PROGRAM [ARGUMENTS]
                             run PROGRAM with HAKMEM in place of its malloc; --secure: with the hardened HAKMEM
Look
  look [PID] [--VIEW]        list the processes on HAKMEM; watch PID, or say what its memory is: --explain, --stats,
                             --map (a drawing), --top (a screen), --serve (for browsers and Prometheus)
Find
  heap FILE...               show a heap profile: top sites, tree, comparison, flame graph
  leaks -- PROGRAM           run PROGRAM and show which blocks nothing points to at its end
  guard FILE...              show the errors that guarded blocks found, with functions and source lines
Decide
  compare -- PROGRAM         measure PROGRAM on several allocators
  analyze PID, analyze -- PROGRAM
                             rank what costs time and memory, and name the option or change that takes it away
  doctor [PID]               check whether HAKMEM serves a process, or can serve programs on this machine
The command
  completion SHELL           make bash, zsh or fish complete commands, PIDs and names
  help [COMMAND]             print this, or the page of COMMAND, as 'hakmem COMMAND --help' does
  help developer             list the commands that build, test, pack and measure HAKMEM
  --version                  print HAKMEM's version

PID is a process's number or its name. A command names the Debian packages that it lacks. If root runs it, it installs
them; on a terminal it asks first, and --yes answers the question.

Exit status: 0 done; 1 failed; 2 the command line is wrong. 'run', 'shell', 'leaks', 'trace record' and 'peers run' end
as PROGRAM does, or with 126 if PROGRAM cannot be run, 127 if it does not exist.
END
}

usage_developer()
{
    cat <<'END'
The commands that build, test, pack and measure HAKMEM:

  build [FLAVOR]             build the library and its programs
  test [OPTIONS] [CTEST ARGUMENTS]
                             build and test: less than ten minutes, or everything with --all
  test --soak MINUTES        run stress programs and servers in rotation, with random settings and seeds
  fuzz TARGET                look for inputs that break a part of HAKMEM
  shell [-- PROGRAM]         start a shell, or PROGRAM, with all that a developer needs on the PATH
  bench                      measure the allocators side by side on the benchmark programs
  peers                      build the other allocators, and run a program on one
  trace                      record a program's allocations, and replay them on each allocator
  wheel [FOLDER]             make a Python wheel of the tools with the library inside
  amalgamate [FOLDER]        make the one-file source, hakmem.c and hakmem.h
  crates [FOLDER]            make the Rust crates hakmem and hakmem-sys
  package [FOLDER]           make everything that users install, with checksums
END
}

usage_build()
{
    cat <<'END'
usage: hakmem build [FLAVOR]

Build into build/FLAVOR: the libraries in lib/, the programs in bin/. If build/ cannot be written to, or the checkout's
path has a blank, a colon or a #, the build goes to ~/.cache/hakmem (XDG_CACHE_HOME), and a message says so.

  FLAVOR                     release (the default), debug, asan (with ubsan), ubsan alone, tsan, cycles (with the cycle
                             profile), clang, aarch64, riscv64, coverage (counts what runs: see 'hakmem test
                             --coverage')
END
}

usage_run()
{
    cat <<'END'
usage: hakmem run [OPTIONS] [--] PROGRAM [ARGUMENTS]

Build the library if needed, and run PROGRAM with HAKMEM in place of its malloc. The exit status is PROGRAM's. If HAKMEM
cannot take effect (in a static or set-user-id program, or one for another machine), a line on standard error says so,
and PROGRAM runs without it.

  --stats[=text|json]        print statistics at its end
  --profile                  print a cycle profile at its end (builds the flavor that carries it)
  --secure                   use the hardened library, libhakmem-secure.so (docs/hardening.md)
  --heap-profile FILE        write a heap profile at its end, as pprof and 'hakmem heap' read it
  --budget FIGURE=MOST,...   end with 1 if PROGRAM takes more: peak, heap, allocations, allocated, inuse, leaked
  --markdown FILE            append the budget's figures to FILE (default: the file that GITHUB_STEP_SUMMARY names)
  --set NAME=VALUE           any option of docs/options.md, with or without HAKMEM_ before it
END
}

usage_test()
{
    cat <<'END'
usage: hakmem test [--all [--fresh] | --again | --changed [--base COMMIT]] [--yes]
       hakmem test [--flavor FLAVOR]... [--coverage] [--yes] CTEST ARGUMENTS
       hakmem test [--flavor FLAVOR]... --soak MINUTES [--seed N] [--only KIND]

Build and test in stages. A stage that fails does not keep the others from running. At the end each failed test is
named, and each skipped one with what this machine cannot do; then comes the number of each.
Without --all it takes less than ten minutes on two processors and needs what a build needs, Python and cmocka: it tests
the flavors release, asan (with ubsan) and tsan. CTEST ARGUMENTS, such as -R REGEX or -L LABEL, go to ctest: then there
are no stages, and ctest chooses among all tests of all flavors, or of those that --flavor names.

  --all                      run every test of every flavor, as continuous integration does; each stage first installs
                             what it needs
  --fresh                    analyse all sources anew, not only those that changed
  --again                    run what failed in the last run
  --changed                  run the tests that concern what changed since origin/main, or since --base COMMIT
  --coverage                 build the flavor coverage, run its tests, print which lines and branches of src/ ran, write
                             build/coverage/html, and fail if a line did not run that docs/dev/coverage.md does not list
  --flavor FLAVOR            test this flavor in place of those (see 'hakmem build --help'); may be repeated
  --yes                      install missing Debian packages without asking
  --soak MINUTES             run stress programs and servers in rotation, with random settings and seeds; watch their
                             memory, and end those that hang
  --seed N, --only KIND      repeat one run of the soak
END
}

usage_fuzz()
{
    cat <<'END'
usage: hakmem fuzz TARGET [--minutes N] [ARGUMENTS]

Look for inputs that break TARGET for N minutes (10). build/fuzz/found keeps those that it finds.

  calls, maps, options, procfs, recording, trace
                             targets of libFuzzer, which gets ARGUMENTS; with a file it runs only that input
  heap, image, info, jit, linking, report, symbols
                             the Python readers; ARGUMENTS are --seed N and --number N, or files
END
}

usage_shell()
{
    cat <<'END'
usage: hakmem shell [-- PROGRAM [ARGUMENTS]]

Install what building, testing and measuring need, build the flavor release, and start a shell. The shell's PATH begins
with this checkout, build/venv/bin and build/release/bin: it finds hakmem, python, pytest and the built programs. Its
prompt begins with (hakmem), and it completes hakmem's commands. Type exit to leave it.

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

  --only KIND                make only this kind and what it needs; may be repeated:
                             $(sed -n 's/^    Kind("\([a-z]*\)".*/\1/p' "$root/tools/package/kinds.py" | paste -sd ' ')
  FOLDER                     where it goes (dist)
END
}

usage_help()
{
    cat <<'END'
usage: hakmem help [COMMAND [SUBCOMMAND] | developer]

List the commands, those for developers, or print the page of one.
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
    amalgamate | build | crates | developer | fuzz | help | package | run | shell | test | wheel)
        print_text "usage_$1"
        ;;
    advise | analyze | bench | compare | completion | doctor | explain | guard | heap | leaks | look | map | peers | \
        ps | serve | stats | top | trace)
        look_with base "$@" --help
        ;;
    *) refuse_command "$1" ;;
    esac
}

# The commands that completion offers: the first word of each line in the overviews' left columns.
command_names()
{
    { usage && usage_developer; } | sed -n 's/^  \([a-z]*\) .*/\1/p' | sort -u
}

# refuse_command WORD: names the commands that are spelled alike, as the tools in python/ do. Without Python, none.
refuse_command()
{
    local alike names
    mapfile -t names < <(command_names && printf '%s\n' explain map ps serve stats top)
    alike=$(python3 -c 'import difflib, sys
print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:]), sep=" or ")' "$1" "${names[@]}" 2>/dev/null) || true
    refuse "unknown command '$1'${alike:+; did you mean $alike?}"
}
