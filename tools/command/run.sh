# The command `run`. tools/run has its rules; here is what builds the library first.

# Whether a build belongs to another user, so that this user cannot update it, and is no older than its sources.
is_anothers_build()
{
    [[ $root != *[[:space:]:]* && -f $1/lib/libhakmem.so && -x $1/bin/hakmem-run && -n $(unwritable) ]] &&
        [[ -z $(find "$root/CMakeLists.txt" "$root/src" "$root/include" -newer "$1/lib/libhakmem.so" -print -quit) ]]
}

# build_for_run FLAVOR TARGET...: builds with what a fresh system has.
build_for_run()
{
    choose_out
    require_build_tools
    lock_build
    configure "$1" OFF
    build_flavor "$@"
    unlock_build
}

# Sets `starter` to the program that knows the rules of `run` (tools/run), and builds it where it is not there.
find_starter()
{
    for starter in ${HAKMEM_BUILD_DIR:+"$HAKMEM_BUILD_DIR/bin/hakmem-run"} "$own_out/release/bin/hakmem-run"; do
        [[ ! -x $starter ]] || return 0
    done
    choose_out
    starter=$out/release/bin/hakmem-run
    [[ -x $starter ]] || build_for_run release hakmem_run
}

command_run()
{
    local starter needs flavor library ending build=${HAKMEM_BUILD_DIR:-}
    find_starter
    needs=$("$starter" needs "$@") || exit
    read -r flavor library ending <<<"$needs"
    # HAKMEM_BUILD_DIR names another build, which is used as it is, as the tools in python/ do.
    if [[ -z $build ]]; then
        build=$own_out/$flavor
        if ! is_anothers_build "$build"; then
            build_for_run "$flavor" "$library" hakmem_run
            build=$out/$flavor
        fi
        starter=$build/bin/hakmem-run
    fi
    # The tools watch the program and examine it at its end. A profile alone is no reason to set them up: without them
    # the library writes it, unless the program ends by _exit or a signal.
    if [[ $ending == budget ]]; then
        make_venv trace
    elif [[ $ending == profile && -x $own_out/venv/bin/python ]]; then
        venv=$own_out/venv
    else
        exec "$starter" run "$@"
    fi
    HAKMEM_BUILD_DIR=$build exec "$venv/bin/python" -c "$launch" run "$@"
}
