# Debian packages. The lists in tools/packages name them, an entry a line: alternatives apart by "|", then "#" and what
# the package is for. A reason that contains "unless the command NAME is there" leaves the entry out where NAME exists,
# wherever it comes from. {clang} stands for the version of Debian's clang, as {python3} for Python's.

venv_packages=(python3 python3-venv)
# For apt: without its own cache, which takes 90 MB of a fresh system.
no_apt_cache=(-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
# A machine that has no lists of packages yet gets compressed ones, which take 21 MB in place of 92 (Debian 13).
small_lists=()
compgen -G "/var/lib/apt/lists/*_Packages*" >/dev/null ||
    small_lists=(-o Acquire::GzipIndexes=true -o Acquire::Languages=none)

# read_list NAME...: prints the entries of the lists in tools/packages, without the reasons, each once.
read_list()
{
    local name line
    for name in "$@"; do
        while read -r line; do
            if [[ $line =~ 'unless the command '([^ ]+)' is there' ]] &&
                command -v "${BASH_REMATCH[1]}" >/dev/null; then
                continue
            fi
            line=${line%%#*}
            if [[ -n ${line//[[:space:]]/} ]]; then
                echo "${line%%[[:space:]]*}"
            fi
        done <"$root/tools/packages/$name.txt"
    done | awk '!seen[$0]++'
}

# Prints what the lists say about each entry, after its name.
print_reasons()
{
    local entry
    for entry in "$@"; do
        awk -v entry="$entry" '$1 == entry && $2 == "#" { sub(/^[^#]*# */, ""); print "  " entry ": " $0; exit }' \
            "$root"/tools/packages/*.txt
    done
}

# version_of PACKAGE: prints the version in the name of the package that PACKAGE stands for: 14 for clang, 3.11 for
# python3.
version_of()
{
    # What is installed is asked first, because apt-cache takes half a second.
    {
        dpkg-query -W -f '${Depends}\n' "$1" 2>/dev/null | grep . ||
            apt-cache "${no_apt_cache[@]}" depends "$1" 2>/dev/null
    } |
        grep -oE '(^|[ ,])[a-z]+-?[0-9][0-9.]*([ ,]|$)' | grep -oE '[0-9][0-9.]*' | head -1
}

# alternatives_of ENTRY: prints the names that an entry stands for, the preferred one first.
alternatives_of()
{
    local name package
    for name in ${1//|/ }; do
        if [[ $name =~ \{([a-z0-9]+)\} ]]; then
            package=${BASH_REMATCH[1]}
            name=${name/"{$package}"/$(version_of "$package")}
        fi
        echo "$name"
    done
}

# list_missing_packages ENTRY...: prints the entries of which no alternative is installed, one on each line.
list_missing_packages()
{
    local entry name installed names=()
    for entry in "$@"; do
        if [[ $entry == *[\|{]* ]]; then
            mapfile -t -O "${#names[@]}" names < <(alternatives_of "$entry")
        else
            names+=("$entry")
        fi
    done
    # One call: a hundred take seconds on a loaded machine. It fails if it does not know one of them.
    installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${names[@]}" 2>/dev/null | sed -n 's/^.i. *//p') ||
        true
    for entry in "$@"; do
        for name in $([[ $entry == *[\|{]* ]] && alternatives_of "$entry" || echo "$entry"); do
            if [[ $'\n'$installed$'\n' == *$'\n'"$name"$'\n'* ]]; then
                continue 2
            fi
        done
        echo "$entry"
    done
}

# choose_packages ENTRY...: sets `chosen` to the packages that this system's lists have, and `unknown` to the entries
# of which they have none.
choose_packages()
{
    local entry name names=() known
    chosen=() unknown=()
    for entry in "$@"; do
        mapfile -t -O "${#names[@]}" names < <(alternatives_of "$entry")
    done
    # One call, because each reads all lists. It fails if it does not know one of the names.
    known=$(apt-cache "${no_apt_cache[@]}" show --no-all-versions ${names[@]+"${names[@]}"} 2>/dev/null |
        sed -n 's/^Package: //p') || true
    for entry in "$@"; do
        for name in $(alternatives_of "$entry"); do
            if [[ $'\n'$known$'\n' == *$'\n'"$name"$'\n'* ]]; then
                chosen+=("$name")
                continue 2
            fi
        done
        unknown+=("$entry")
    done
}

# Asks the user on a terminal, unless --yes was given. Without a terminal nobody could answer.
confirm()
{
    local answer=n
    if [[ $assume_yes == yes || ! -t 0 || ! -t 2 ]]; then
        return
    fi
    read -r -p "Install them? [Y/n] " answer || answer=n
    [[ -z $answer || $answer == [yY]* ]]
}

# Runs apt-get, which waits for another process that installs. No service starts on this machine: policy-rc.d refuses
# it while the packages are set up.
apt_install()
{
    local policy=/usr/sbin/policy-rc.d status=0
    export DEBIAN_FRONTEND=noninteractive
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
        # shellcheck disable=SC2064 # the path is known now
        trap "rm -f $policy" EXIT
    else
        policy=""
    fi
    progressing apt-get "${no_apt_cache[@]}" -o APT::Keep-Downloaded-Packages=false -o Acquire::Retries=3 \
        -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" ||
        status=1
    if [[ -n $policy ]]; then
        rm -f "$policy"
        trap - EXIT
    fi
    return "$status"
}

apt_updated=no

# offer_packages WHAT ENTRY...: installs the packages that WHAT lacks, as root. If some stay missing, says so and fails.
offer_packages()
{
    local what=$1 missing chosen unknown status=0
    shift
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "$what needs what Debian calls $*; this is not Debian, so nothing is installed here"
        return 1
    fi
    mapfile -t missing < <(list_missing_packages "$@")
    if ((${#missing[@]} == 0)); then
        return
    fi
    say "$what needs Debian packages that are not installed: ${missing[*]}"
    print_reasons "${missing[@]}" >&2
    if ((EUID != 0)); then
        say "install them as root: apt-get install ${missing[*]}"
        return 1
    fi
    if ! confirm; then
        say "nothing was installed"
        return 1
    fi
    lock_system
    if [[ $apt_updated == no ]]; then
        progressing apt-get "${no_apt_cache[@]}" "${small_lists[@]}" -o Acquire::Retries=3 update && apt_updated=yes
    fi
    # Another hakmem may have installed some while this one waited.
    mapfile -t missing < <(list_missing_packages "${missing[@]}")
    choose_packages ${missing[@]+"${missing[@]}"}
    if ((${#chosen[@]} > 0)); then
        say "installing ${chosen[*]}"
        apt_install "${chosen[@]}" || status=1
    fi
    unlock_system
    if ((${#unknown[@]} > 0)); then
        say "this system's package lists have no ${unknown[*]}"
        status=1
    fi
    return "$status"
}

# Only one hakmem installs at a time on this machine. The lock is root's own.
lock_system()
{
    exec 7>/run/hakmem-install.lock
    if ! flock -n 7; then
        say "another hakmem installs packages; waiting for it"
        flock 7
    fi
}
unlock_system() { exec 7>&-; }

# install_packages WHAT ENTRY...: the same for packages that WHAT requires.
install_packages() { offer_packages "$@" || exit 1; }

# A build needs these commands, wherever they come from.
require_build_tools()
{
    local tool packages
    for tool in cmake ninja gcc; do
        if ! command -v "$tool" >/dev/null; then
            mapfile -t packages < <(read_list build)
            install_packages "a build" "${packages[@]}"
            return
        fi
    done
}

# Installs programs to measure and what builds the peers. All are optional: the tools leave out what is missing.
offer_bench_tools()
{
    local packages
    mapfile -t packages < <(read_list bench)
    offer_packages "$1" "${packages[@]}" || say "what needs them is left out"
}

# The flavors for other processors, which have the processors' names.
is_cross() { [[ $1 == aarch64 || $1 == riscv64 ]]; }

# Debian's name of a processor.
debian_name() { [[ $1 == aarch64 ]] && echo arm64 || echo "$1"; }

require_cross_compiler()
{
    install_packages "a build for $1" "gcc-$1-linux-gnu" "g++-$1-linux-gnu" "libc6-dev-$(debian_name "$1")-cross" \
        qemu-user-static
}

# require_cross_tools PROCESSOR: downloads its cmocka and musl with a separate apt state and unpacks them into build/,
# so that the system gets no foreign architecture.
require_cross_tools()
{
    local processor=$1 target=$out/$1-root work name
    name=$(debian_name "$processor")
    require_cross_compiler "$processor"
    if [[ -e $target/usr/include/cmocka.h && -e $target/usr/lib/$processor-linux-gnu/libcmocka.so &&
        -e $target/lib/$processor-linux-musl/libc.so && -d $target/usr/include/$processor-linux-musl ]]; then
        return
    fi
    say "fetching cmocka and musl for $processor"
    work=$(mktemp -d)
    mkdir -p "$work"/{lists/partial,cache/archives/partial,state,packages} "$target"
    : >"$work/status"
    local apt=(apt-get -o "APT::Architecture=$name" -o "APT::Architectures::=$name" -o "Dir::State=$work/state"
        -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o "Dir::State::status=$work/status"
        -o APT::Sandbox::User=root -o Acquire::Retries=3)
    if [[ $processor == riscv64 ]]; then # Debian has it since release 13
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" \
            >"$work/sources.list"
        apt+=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-)
    fi
    progressing "${apt[@]}" update || exit 1
    (cd "$work/packages" && progressing "${apt[@]}" download libcmocka-dev libcmocka0 musl musl-dev) || exit 1
    local package
    for package in "$work"/packages/*.deb; do
        dpkg-deb -x "$package" "$target" || exit 1
    done
    [[ -e $target/lib ]] || ln -s usr/lib "$target/lib"
    rm -rf "$work"
}

# The packages that pack artifacts. Those that build them are required separately.
require_packers()
{
    local packages
    mapfile -t packages < <(read_list package)
    install_packages "'hakmem package'" "${packages[@]}"
}
