#!/bin/sh
# Installs the packages in /packages, uses what they install, and removes them. For tools/rooms --packages.
# Its arguments go to apt-get install, such as --no-install-recommends. Packages in /packages/before are those of an
# older release: they are installed first, and upgraded.
set -eu
export DEBIAN_FRONTEND=noninteractive
cd /

fail()
{
    echo "installed: $1"
    cat /tmp/said
    exit 1
}

# The packages that the last output tells to install.
told()
{
    sed -n 's/.*apt-get install \([^:;,]*\).*/\1/p' /tmp/said | sed 's/ adds .*//'
}

# Debian's Python refuses pip outside of virtual environments.
refused()
{
    ! grep -q 'pip install' /tmp/said || grep -q 'virtual environment' /tmp/said || fail "the last command names pip"
}

ends() # STATUS COMMAND...: fails unless the command ends with the status, and names only packages that exist.
{
    wanted=$1 status=0
    shift
    echo "# $*"
    "$@" >/tmp/said 2>&1 || status=$?
    head -n 4 /tmp/said | cut -c 1-150
    [ "$status" = "$wanted" ] || fail "'$*' ended with $status, not $wanted"
    case $1 in
    hakmem)
        for package in $(told); do
            apt-cache show "$package" >/dev/null 2>&1 || fail "'$*' names $package, which this system has not"
        done
        refused
        ;;
    esac
}

helped() # COMMAND...: as `ends 0`, once the packages are installed that the command tells to install, if any.
{
    echo "# $*"
    if ! "$@" >/tmp/said 2>&1; then
        [ -n "$(told)" ] || fail "'$*' failed, and names no package"
        # shellcheck disable=SC2046  # the words of the hint
        ends 0 apt-get -qy install $(told)
    fi
    ends 0 "$@"
}

files() # All that the packages may leave.
{
    find /etc /usr /var /opt /root /home /run -xdev \( -path /var/lib/apt -o -path /var/cache/apt -o -path /var/log \
        -o -path /root/hakmem \) -prune -o -name '*hakmem*' -print | sort
}

in_use() # Starts a process on HAKMEM. Its PID is $process.
{
    hakmem run "$@" -- python3 -c '
import time
blocks = [bytes(1000) for _ in range(100000)]
time.sleep(600)' &
    process=$!
    sleep 3
}

files >/tmp/before
echo "before: $(wc -l </tmp/before) files"
ends 0 apt-get -q update
if [ -d /packages/before ]; then
    ends 0 apt-get -qy "$@" install /packages/before/libhakmem0_*.deb /packages/before/hakmem_*.deb
    ends 0 hakmem --version
    in_use
    ends 0 hakmem doctor "$process"
fi
ends 0 apt-get -qy "$@" install /packages/libhakmem0_*.deb /packages/hakmem_*.deb
if [ -d /packages/before ]; then
    kill "$process" || fail "the process on the older library has ended"
    ends 0 dpkg --verify libhakmem0 hakmem
    find /usr/lib/hakmem /usr/share -name '*hakmem*' -type f -not -name '*.pyc' -not -path '/usr/share/doc/*' |
        sort >/tmp/there
    dpkg -L libhakmem0 hakmem | sort >/tmp/owned
    comm -23 /tmp/there /tmp/owned >/tmp/said
    [ ! -s /tmp/said ] || fail "the upgrade leaves"
fi
ends 0 hakmem --version
ends 0 hakmem help
ends 0 hakmem run -- /bin/true
ends 0 hakmem run --secure -- /bin/true
ends 2 hakmem run --set purge_dely=1 -- /bin/true
in_use --heap-profile /tmp/profile.gz
for view in "look PID --explain" "look PID --stats" "look PID --once" "look PID --map -o /tmp/map.html" look \
    "explain PID" "stats PID" "top --once PID" ps "heap PID" "heap --html /tmp/heap.html PID" "heap --pins PID" \
    "doctor PID" "guard --start PID"; do
    # shellcheck disable=SC2046  # the words of a command
    ends 0 hakmem $(echo "$view" | sed "s/PID/$process/")
done
# A screen without textual goes on until it is ended.
ends 0 script -qec "timeout --foreground --preserve-status -s INT 3 hakmem top $process" /dev/null
refused
helped hakmem leaks -- /bin/true
ends 0 hakmem compare --rounds 1 --no-calls -- /bin/true
ends 2 hakmem trace record -- /bin/true
echo "# hakmem serve"
serve="timeout -s INT 12 hakmem serve --port 8427 --no-token"
$serve >/tmp/said 2>&1 &
server=$!
sleep 6
if ! kill -0 "$server" 2>/dev/null; then
    cat /tmp/said
    [ -n "$(told)" ] || fail "'hakmem serve' failed, and names no package"
    # shellcheck disable=SC2046  # the words of the hint
    ends 0 apt-get -qy install $(told)
    $serve >/tmp/said 2>&1 &
    server=$!
    sleep 6
fi
python3 - <<'END'
import urllib.request
for path in "metrics", "api/processes", "", "debug/pprof/heap?name=python3":
    with urllib.request.urlopen(f"http://127.0.0.1:8427/{path}", timeout=60) as answer:
        print(path, answer.status, len(answer.read()))
END
wait "$server" || true
kill "$process"
ends 0 apt-get -qy "$@" install /packages/hakmem-serve_*.deb
test -f /usr/lib/systemd/system/hakmem-serve.service
ends 0 apt-get -qy remove hakmem-serve hakmem libhakmem0
files >/tmp/left
echo "removed: $(wc -l </tmp/left) files" && cat /tmp/left
ends 0 apt-get -qy purge '~c'
files >/tmp/left
echo "purged: $(wc -l </tmp/left) files"
cp /tmp/left /tmp/said
cmp -s /tmp/before /tmp/left || fail "purge leaves"
echo "1 passed, 0 failed"
