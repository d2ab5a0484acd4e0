# What is made for users: the commands `wheel`, `amalgamate`, `crates` and `package`.

# require_folder COMMAND FOLDER: makes FOLDER, into which COMMAND writes, where it is missing.
require_folder()
{
    [[ $2 != -* ]] || refuse "unknown option '$2' of $1"
    [[ ! -e $2 || -d $2 ]] || refuse "$1 takes a folder, which $2 is not"
    quietly mkdir -p "$2" || exit 1
    [[ -w $2 ]] || die "$2 cannot be written to by $(id -un)"
}

# Makes a wheel for this machine, in a minute. ./hakmem package makes the wheels for all machines.
command_wheel()
{
    local folder=${1:-$root/build/wheel} flavor
    (($# <= 1)) || refuse "wheel takes one folder"
    require_folder wheel "$folder"
    require_own_out "hakmem wheel"
    require_build_tools
    lock_build
    make_venv all
    for flavor in release cycles; do
        configure "$flavor" OFF
        build_flavor "$flavor" hakmem
    done
    build_flavor release bench_measure hakmem_run
    unlock_build
    quietly env -u HAKMEM_BUILD_DIR "$venv/bin/python" -m pip wheel --disable-pip-version-check -q --no-deps \
        --no-build-isolation -w "$folder" "$root/python"
    say "the wheel is in $folder"
}

# Needs Python, but none of its packages.
command_amalgamate()
{
    local folder=${1:-$root/build/onefile}
    (($# <= 1)) || refuse "amalgamate takes one folder"
    require_folder amalgamate "$folder"
    command -v python3 >/dev/null || install_packages "'hakmem amalgamate'" python3
    PYTHONDONTWRITEBYTECODE=1 exec python3 "$root/tools/amalgamate.py" "$folder"
}

# Makes the crates as they are published. cargo also takes those in rust/, whose build makes the C source itself.
command_crates()
{
    local folder=${1:-$root/build/crates} path
    (($# <= 1)) || refuse "crates takes one folder"
    require_folder crates "$folder"
    command -v python3 >/dev/null || install_packages "'hakmem crates'" python3
    for path in Cargo.toml Cargo.lock hakmem hakmem-sys; do
        rm -rf "${folder:?}/$path"
        cp -R "$root/rust/$path" "$folder/$path"
    done
    PYTHONDONTWRITEBYTECODE=1 quietly python3 "$root/tools/amalgamate.py" "$folder/hakmem-sys/vendor"
    say "the crates are in $folder"
}

command_package()
{
    require_own_out "hakmem package"
    require_build_tools
    require_packers
    lock_build
    require_cross_tools aarch64
    unlock_build
    make_venv all
    PYTHONDONTWRITEBYTECODE=1 exec "$venv/bin/python" "$root/tools/package" "$@"
}
