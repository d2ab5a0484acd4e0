# Debian's packages: the command or file that proves one is there, and how it is installed.

build_packages=(cmake ninja-build gcc libc6-dev)
test_packages=(g++ make clang binutils pkg-config python3 python3-venv libcmocka-dev)
venv_packages=(python3 python3-venv)
clang_packages=(clang libclang-rt-14-dev)
cross_packages=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)

# Prints the packages that are not installed, one on each line.
list_missing_packages()
{
    local package installed
    # One call: a hundred take seconds on a loaded machine. It fails if it does not know one of them.
    installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^.i. *//p' || true)
    for package in "$@"; do
        if [[ $'\n'$installed$'\n' != *$'\n'"$package"$'\n'* ]]; then
            echo "$package"
        fi
    done
}

# Prints what the lists in tools/ say about a package, after its name.
print_reasons()
{
    local package
    for package in "$@"; do
        sed -n "s/^$package  *# \(.*\)$/  $package: \1/p" "$root"/tools/packages-*.txt | sort -u | head -1
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

# offer_packages WHAT PACKAGE...: installs the packages that WHAT lacks, as root. If some stay missing, says so and
# fails.
offer_packages()
{
    local what=$1 missing
    shift
    if ! command -v dpkg-query >/dev/null; then
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
    lock_setup
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local status=0
    quietly apt-get -o Acquire::Retries=3 update &&
        quietly apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 \
            install -y --no-install-recommends "${missing[@]}" || status=1
    unlock_setup
    return "$status"
}

# install_packages WHAT PACKAGE...: the same for packages that WHAT requires.
install_packages() { offer_packages "$@" || exit 1; }

# A build needs these commands, wherever they come from.
require_build_tools()
{
    local tool
    for tool in cmake ninja gcc; do
        if ! command -v "$tool" >/dev/null; then
            install_packages "a build" "${build_packages[@]}"
            return
        fi
    done
}

# Prints the packages that a file lists, one on each line. The text after "#" says what for. If it contains "unless the
# command NAME is there", the package is left out if NAME exists, wherever it comes from.
read_list()
{
    local line
    while read -r line; do
        if [[ $line =~ 'unless the command '([^ ]+)' is there' ]] && command -v "${BASH_REMATCH[1]}" >/dev/null; then
            continue
        fi
        line=${line%%#*}
        if [[ -n ${line//[[:space:]]/} ]]; then
            echo "${line%%[[:space:]]*}"
        fi
    done <"$1"
}

# Installs programs to measure and what builds the peers. All are optional: the tools leave out what is missing.
offer_bench_tools()
{
    local packages
    mapfile -t packages < <(read_list "$root/tools/packages-bench.txt")
    offer_packages "$1" "${packages[@]}" || say "what needs them is left out"
}

# list_all_packages: sets `packages` to what building, testing, measuring and packing need.
list_all_packages()
{
    local list
    packages=("${build_packages[@]}" "${test_packages[@]}")
    for list in test bench package; do
        list=$root/tools/packages-$list.txt
        [[ -f $list ]] || die "$list is missing"
        mapfile -t -O "${#packages[@]}" packages < <(read_list "$list")
    done
}

require_test_tools()
{
    local packages
    list_all_packages
    install_packages "'hakmem test'" "${packages[@]}"
    make_venv all
}

# Downloads the target's cmocka and musl with a separate apt state and unpacks them into build/, so that the system gets
# no foreign architecture.
require_cross_tools()
{
    local target=$out/aarch64-root work
    install_packages "a build for aarch64" "${cross_packages[@]}"
    if [[ -e $target/usr/include/cmocka.h && -e $target/usr/lib/aarch64-linux-gnu/libcmocka.so &&
        -e $target/lib/aarch64-linux-musl/libc.so && -d $target/usr/include/aarch64-linux-musl ]]; then
        return
    fi
    say "fetching cmocka and musl for aarch64"
    work=$(mktemp -d)
    mkdir -p "$work"/{lists/partial,cache/archives/partial,state,packages} "$target"
    : >"$work/status"
    local apt=(apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::State=$work/state"
        -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o "Dir::State::status=$work/status"
        -o APT::Sandbox::User=root -o Acquire::Retries=3)
    quietly "${apt[@]}" update
    (cd "$work/packages" && quietly "${apt[@]}" download libcmocka-dev libcmocka0 musl musl-dev)
    local package
    for package in "$work"/packages/*.deb; do
        dpkg-deb -x "$package" "$target"
    done
    rm -rf "$work"
}

# The packages that pack artifacts. Those that build them are required separately.
require_packers()
{
    local packages
    mapfile -t packages < <(read_list "$root/tools/packages-package.txt")
    install_packages "'hakmem package'" "${packages[@]}"
}
