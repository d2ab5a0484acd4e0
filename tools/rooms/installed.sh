#!/bin/sh
# Installs the packages in /packages, uses what they install, and removes them. For tools/rooms --packages.
# Its arguments go to apt-get install, such as --no-install-recommends.
set -eu
export DEBIAN_FRONTEND=noninteractive
cd /

ends() # STATUS COMMAND...: fails unless the command ends with the status.
{
    wanted=$1 status=0
    shift
    echo "# $*"
    "$@" >/tmp/said 2>&1 || status=$?
    head -n 4 /tmp/said | cut -c 1-150
    [ "$status" = "$wanted" ] || { echo "installed: '$*' ended with $status, not $wanted"; cat /tmp/said; exit 1; }
}

files() # All files of the system that the packages may leave.
{
    find /etc /usr /var/lib /var/cache /opt -xdev -name '*hakmem*' -not -path '*/apt/*' | sort
}

ends 0 apt-get -q update
ends 0 apt-get -qy "$@" install /packages/libhakmem0_*.deb /packages/hakmem_*.deb
ends 0 hakmem --version
ends 0 hakmem help
ends 0 hakmem run -- /bin/true
ends 2 hakmem run --set purge_dely=1 -- /bin/true
hakmem run --heap-profile /tmp/profile.gz -- python3 -c '
import time
blocks = [bytes(1000) for _ in range(100000)]
time.sleep(600)' &
process=$!
sleep 3
for view in "--explain" "--stats" "--once" "--map -o /tmp/map.html"; do
    # shellcheck disable=SC2086  # two words
    ends 0 hakmem look "$process" $view
done
ends 0 hakmem look
ends 0 hakmem heap "$process"
ends 0 hakmem doctor "$process"
ends 0 hakmem guard --start "$process"
echo "# hakmem serve"
hakmem serve --port 8427 --no-token >/tmp/said 2>&1 &
server=$!
sleep 5
if kill -0 "$server" 2>/dev/null; then
    python3 - <<'END'
import urllib.request
for path in "metrics", "api/processes", "", "debug/pprof/heap?name=python3":
    with urllib.request.urlopen(f"http://127.0.0.1:8427/{path}", timeout=60) as answer:
        print(path, answer.status, len(answer.read()))
END
    kill "$server"
    wait "$server"
else
    # Without recommended packages there is a hint. It must name a package that can be installed.
    cat /tmp/said
    # shellcheck disable=SC2046  # the words of the hint
    ends 0 apt-get -qy install $(sed -n 's/.*apt-get install \(.*\)/\1/p' /tmp/said)
    ends 0 timeout -s INT 5 hakmem serve --port 8427 --no-token
fi
ends 0 apt-get -qy "$@" install /packages/hakmem-serve_*.deb
test -f /usr/lib/systemd/system/hakmem-serve.service
kill "$process"
ends 0 apt-get -qy purge hakmem-serve hakmem libhakmem0
files >/tmp/left
if [ -s /tmp/left ]; then
    echo "installed: purge leaves" && cat /tmp/left
    exit 1
fi
echo "1 passed, 0 failed"
