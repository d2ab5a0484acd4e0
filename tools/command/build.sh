# Building the flavors, and the commands `build` and `shell`.

# Runs a command and shows its output only if it fails. The status is then always 1: the failure is this script's.
quietly()
{
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    if ((status != 0)); then
        cat "$log" >&2
        say "failed ($status): $*"
    fi
    rm -f "$log"
    ((status == 0))
}

# progressing COMMAND...: as quietly, for a command that may take long. Shows every 15 seconds what the command printed
# last.
progressing()
{
    local log status=0 reporter began=$SECONDS
    log=$(mktemp)
    (
        exec 7>&- 8>&- 9>&- {never}<> <(:)
        # A builtin waits here: a child would outlive this shell and hold the caller's streams open.
        while ! read -r -t 15 -u "$never"; do
            say "  $((SECONDS - began)) s: $(tail -c 400 "$log" | tr '\r' '\n' | grep -v '^ *$' | tail -n 1 |
                cut -c -100)"
        done
    ) &
    reporter=$!
    "$@" >"$log" 2>&1 || status=$?
    kill "$reporter" 2>/dev/null
    wait "$reporter" 2>/dev/null || true
    if ((status != 0)); then
        cat "$log" >&2
        say "failed ($status): $*"
    fi
    rm -f "$log"
    ((status == 0))
}

# A flavor that the stages of 'hakmem test' know.
check_flavor()
{
    case $1 in
    release | debug | asan | ubsan | tsan | cycles | clang | aarch64 | riscv64) ;;
    coverage) refuse "the flavor coverage has a run of its own: hakmem test --coverage" ;;
    *) refuse "unknown flavor '$1': release, debug, asan, ubsan, tsan, cycles, clang, aarch64 or riscv64" ;;
    esac
}

# Only one configuration or build at a time in a checkout.
lock_build()
{
    enter_out
    exec 9>"$out/.lock"
    flock 9
}
unlock_build() { exec 9>&-; }

# configure FLAVOR ON|OFF [OPTION...]: with or without the tests, and with OPTIONs of cmake. OFF leaves an existing
# configuration unchanged.
configure()
{
    local build=$out/$1
    if [[ ! -f $build/build.ninja ]]; then
        say "building in ${build#"$root/"}"
    fi
    if [[ $2 == ON ]] || [[ ! -f $build/build.ninja ]]; then
        (cd "$root" && quietly cmake --preset "$1" -B "$build" -DHAKMEM_TESTS="$2" "${@:3}")
    fi
}

# build_flavor FLAVOR [TARGET...]
build_flavor()
{
    local flavor=$1
    shift
    progressing cmake --build "$out/$flavor" --parallel "$jobs" ${1:+--target "$@"}
}

command_build()
{
    local flavor=${1:-release} packages
    (($# <= 1)) || refuse "build takes one flavor"
    [[ $flavor == coverage ]] || check_flavor "$flavor"
    require_build_tools
    if is_cross "$flavor"; then
        require_cross_compiler "$flavor"
    elif [[ $flavor == coverage ]]; then
        mapfile -t packages < <(read_list fuzz)
        install_packages "a build that counts what runs" "${packages[@]}"
    elif [[ $flavor == clang ]]; then
        install_packages "a build by clang" clang
    fi
    lock_build
    configure "$flavor" OFF
    build_flavor "$flavor"
    unlock_build
    local built=${out#"$root/"}/$flavor
    say "built in $built/lib and $built/bin"
}

# Starts a shell, or a program, with the checkout's programs on the PATH. Installs what building and ./hakmem test need;
# names what cannot be installed and goes on.
command_shell()
{
    local packages
    if [[ ${1:-} == -- ]]; then
        shift
        (($# > 0)) || refuse "shell -- needs a program"
    elif (($# > 0)); then
        refuse "unknown option '$1' of shell: a program comes after --"
    fi
    require_own_out "hakmem shell"
    mapfile -t packages < <(read_list build test)
    offer_packages "'hakmem shell'" "${packages[@]}" || say "what needs them will not work"
    require_build_tools
    make_venv test
    lock_build
    configure release OFF
    build_flavor release
    unlock_build
    # The checkout comes first: build/venv/bin has a hakmem, too, which does not build.
    export VIRTUAL_ENV=$venv PATH=$root:$venv/bin:$root/build/release/bin:$PATH
    if (($# > 0)); then
        exec env -- "$@"
    fi
    exec bash --rcfile "$root/tools/shell.bashrc"
}
