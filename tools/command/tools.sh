# The commands of python/hakmem.

# Starts the tools. `python -m` would first look for modules in the current folder, which may be anybody's.
launch='import sys; sys.path[:] = [path for path in sys.path if path]
import runpy; runpy.run_module("hakmem", None, "__main__", True)'

# The tools are Python (python/hakmem, in build/venv). These commands run what a build makes.
command_tool()
{
    local targets=()
    case "$1 ${2:-}" in
    "bench security") targets=(hakmem) ;;
    bench\ *) offer_bench_tools "'hakmem bench'" ;;
    # These commands run a program of the user's. Of the build they need only what starts it.
    analyze\ * | advise\ * | compare\ *) targets=(hakmem hakmem_run bench_measure) ;;
    leaks\ *) targets=(hakmem hakmem_run) ;;
    trace\ record) targets=(hakmem hakmem_run hakmem_trace hakmem_trace_finish) ;;
    trace\ replay) targets=(hakmem bench_measure hakmem_replay) ;;
    esac
    require_build_tools
    make_venv "$(kind_of_venv "$@")"
    lock_build
    configure release OFF
    build_flavor release "${targets[@]}"
    unlock_build
    tell_tools
    exec "$venv/bin/python" -c "$launch" "$@"
}

# Commands that only look need no build, though peers and doctor look for one.
command_look()
{
    look_with "$(kind_of_venv "$@")" "$@"
}

# look_with KIND COMMAND [ARGUMENTS]
look_with()
{
    make_venv "$1"
    case $2 in
    doctor | peers) choose_out ;;
    esac
    tell_tools
    exec "$venv/bin/python" -c "$launch" "${@:2}"
}

# symbolize_for COMMAND [ARGUMENTS]: reads profiles and reports without a build. Without llvm-symbolizer they have only
# functions' names, and the tool says so.
symbolize_for()
{
    command -v c++filt >/dev/null || install_packages "'hakmem $1', for the names of C++," binutils
    if ((EUID == 0)) && command -v dpkg-query >/dev/null && ! command -v llvm-symbolizer >/dev/null; then
        offer_packages "'hakmem $1', for lines of the source," llvm || true
    fi
    command_look "$@"
}

command_guard()
{
    symbolize_for guard "$@"
}

command_leaks()
{
    command -v c++filt >/dev/null || install_packages "'hakmem leaks', for the names of C++," binutils
    if [[ -n ${HAKMEM_BUILD_DIR:-} ]]; then
        command_look leaks "$@"
    fi
    command_tool leaks "$@"
}

command_heap()
{
    symbolize_for heap "$@"
}

command_peers()
{
    local packages
    if [[ ${1:-} == build && " $* " != *" --packages "* ]]; then
        # Only what the chosen peers need: a peer from a package needs no compiler.
        packages=$(command_look peers "$@" --packages) || exit
        if [[ -n $packages ]]; then
            # shellcheck disable=SC2086 # names of packages, a line each
            offer_packages "'hakmem peers $*'" $packages || say "what needs them is left out"
        fi
    elif [[ ${1:-} == run ]]; then
        local starter
        find_starter
    fi
    command_look peers "$@"
}

command_trace()
{
    case ${1:-} in
    record | replay) command_tool trace "$@" ;;
    *) command_look trace "$@" ;;
    esac
}

# Listing and showing results needs no build. A run's rows are looked at before anything is installed or built for them.
command_bench()
{
    local word
    for word in "$@"; do
        case $word in
        --list) look_with base bench "$@" ;;
        show | report) command_look bench "$@" ;;
        esac
    done
    if [[ ${1:-} == -* ]]; then
        (look_with base bench "$@" --list) >/dev/null || exit
    fi
    command_tool bench "$@"
}

# Measuring a program needs the launcher, which a build makes. Looking at a process does not.
command_analyze()
{
    local word
    for word in "$@"; do
        if [[ $word == -- ]]; then
            command_tool "${command:-analyze}" "$@"
        fi
    done
    command_look "${command:-analyze}" "$@"
}

command_advise()
{
    command_analyze "$@"
}

# Answers a shell that completes a line. Sets nothing up for that: without the tools it offers only the commands' names.
answer_shell()
{
    local environment words
    for environment in "$own_out/venv" "$(choose_out && echo "$out/venv")"; do
        if [[ -x $environment/bin/python ]]; then
            HAKMEM_CHECKOUT=1 exec "$environment/bin/python" -c "$launch"
        fi
    done
    if [[ $_HAKMEM_COMPLETE == bash_complete && ${COMP_CWORD:-} == 1 ]]; then
        read -r -a words <<<"${COMP_WORDS:-}"
        compgen -W "$(command_names)" -- "${words[1]:-}" | sed 's/^/plain,/'
    fi
}
