# Where it builds: build/ of the checkout, or the user's own folder.

own_out=$root/build
# The folders of builds and of the environment: the checkout's, or the user's own. choose_out sets both.
out="" out_reason=""

# Prints a part of the checkout's build folder that this user cannot write to, if any: it may be another user's.
unwritable()
{
    local each
    if [[ ! -e $own_out ]]; then
        [[ -w $root ]] || echo "$root"
        return
    fi
    for each in "$own_out" "$own_out"/.lock "$own_out"/.setup.lock "$own_out"/release "$own_out"/release/.ninja_log; do
        if [[ -e $each && ! -w $each ]]; then
            echo "$each"
            return
        fi
    done
}

choose_out()
{
    local blocked
    if [[ -n $out ]]; then
        return
    fi
    out=$own_out
    blocked=$(unwritable)
    if [[ $root == *[[:space:]:]* ]]; then
        out_reason="LD_PRELOAD cannot name a path with a blank or a colon, such as $own_out"
    elif [[ $root == *'#'* ]]; then
        out_reason="CMake cannot build in a path with a #, such as $own_out"
    elif [[ -n $blocked ]]; then
        out_reason="$blocked cannot be written to by $(id -un)"
    else
        return 0
    fi
    # The folder's name contains the checksum of the checkout's path, so that two checkouts have two folders.
    out=${XDG_CACHE_HOME:-${HOME:-}/.cache}/hakmem/$(cksum <<<"$root" | cut -d ' ' -f 1)
    if [[ $out == *[[:space:]:#]* ]]; then
        die "$out_reason, nor one such as $out; set XDG_CACHE_HOME to a folder without, or move the checkout"
    fi
    if ! mkdir -p "$out" 2>/dev/null || [[ ! -w $out ]]; then
        die "$out_reason, and neither can $out; set XDG_CACHE_HOME to a folder that can, or HAKMEM_BUILD_DIR to a" \
            "finished build"
    fi
}

# Unless told otherwise, the tools in python/ look into the checkout's own folder.
tell_tools()
{
    if [[ -z $out || $out == "$own_out" ]]; then
        return
    fi
    export HAKMEM_PEERS_DIR=${HAKMEM_PEERS_DIR:-$out/peers}
    if [[ -d $out/release ]]; then
        export HAKMEM_BUILD_DIR=${HAKMEM_BUILD_DIR:-$out/release}
    fi
}

# For commands that need the build folder inside the checkout, such as the tests.
require_own_out()
{
    choose_out
    if [[ $out != "$own_out" ]]; then
        die "$out_reason; $1 builds there only: take a checkout of your own"
    fi
}

# Call before writing anything.
enter_out()
{
    if [[ $root == *[\;\$\"\\]* ]]; then
        die "CMake cannot build sources whose path has one of ; \$ \" \\, such as $root; move the checkout"
    fi
    choose_out
    if [[ $out != "$own_out" && -n $out_reason ]]; then
        say "$out_reason; $out is used"
        out_reason=""
    fi
    mkdir -p "$out"
}
