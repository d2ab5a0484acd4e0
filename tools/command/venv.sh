# build/venv, in which the tools run.

# Only one set-up at a time in a checkout. Lock order: the build's lock, if taken, comes before this one.
lock_setup()
{
    enter_out
    exec 8>"$out/.setup.lock"
    if ! flock -n 8; then
        say "another hakmem sets this checkout up; waiting for it"
        flock 8
    fi
}
unlock_setup() { exec 8>&-; }

# venv_serves VENV KIND: whether VENV holds what this kind of command needs by the present tools/requirements*.txt. The
# stamp of a kind is written last, so an interrupted set-up leaves none.
venv_serves()
{
    local stamp
    [[ -x $1/bin/python ]] || return 1
    for stamp in "$1/made-all" "$1/made-$2"; do
        if cmp -s <(cat "$root"/tools/requirements*.txt) "$stamp"; then
            return
        fi
    done
    return 1
}

# make_venv KIND: installs what tools/requirements-KIND.txt pins, or all of tools/requirements.txt, into `venv`
# (build/venv). The environment grows on demand and is made anew when one of those files changes.
make_venv()
{
    local kind=$1 requirements=$root/tools/requirements-$1.txt python=/usr/bin/python3 site
    if [[ $kind == all ]]; then
        requirements=$root/tools/requirements.txt
    fi
    venv=$own_out/venv
    if venv_serves "$venv" "$kind"; then
        return
    fi
    choose_out
    venv=$out/venv
    if venv_serves "$venv" "$kind"; then
        return
    fi
    [[ -x $python ]] || python=python3
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_packages "build/venv, which the tools run in," "${venv_packages[@]}"
    fi
    lock_setup
    # Another hakmem may have made it while this one waited.
    if ! venv_serves "$venv" "$kind"; then
        if venv_serves "$venv" base; then
            say "adding to ${venv#"$root/"} what this command needs"
        else
            say "making ${venv#"$root/"}"
            rm -rf "$venv"
            quietly "$python" -m venv "$venv"
            # Two links instead of pip, which would fetch build tools for the package.
            site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
            echo "$root/python" >"$site/hakmem.pth"
        fi
        progressing "$venv/bin/python" -m pip install --disable-pip-version-check -r "$requirements"
        if [[ $kind == all ]]; then
            quietly "$venv/bin/python" -m pip install --disable-pip-version-check -q --no-deps -e "$root/python"
        fi
        # All other files include the pins of base.
        cat "$root"/tools/requirements*.txt | tee "$venv/made-base" >"$venv/made-$kind"
    fi
    unlock_setup
}

# Prints the kind of environment that a command of python/ needs: the smallest with all its imports.
kind_of_venv()
{
    local word
    case $1 in
    bench) echo all ;;
    serve) echo serve ;;
    trace)
        if [[ ${2:-} == info ]]; then
            echo trace
        else
            echo base
        fi
        ;;
    leaks) echo trace ;;
    top) kind_of_look --top "${@:2}" ;;
    look) kind_of_look "${@:2}" ;;
    *) echo base ;;
    esac
}

# As look/command.py chooses a view, but without its parser.
kind_of_look()
{
    local word kind=base named=no pid=no
    for word in "$@"; do
        case $word in
        --once | --help | -h) kind=base; break ;;
        --serve | --port* | --host* | --socket* | --token-file* | --no-token) kind=serve named=yes ;;
        --top | --svg*) kind=top named=yes ;;
        -*) named=yes ;;
        *) pid=yes ;;
        esac
    done
    if [[ $pid$named == yesno && -t 0 && -t 1 ]]; then
        kind=top
    fi
    echo "$kind"
}
