# What the documents' commands assume. Each function starts what a fence names (run=NAME) and sets PID.

# start_python CODE: runs CODE on HAKMEM with a heap profile; returns when it has printed "ready". The process lives
# longer than the commands may take, and the session ends it.
start_python()
{
    hakmem run --heap-profile given.pb.gz -- python3 -c "$1" >given.txt &
    PID=$!
    until grep -qs ready given.txt; do command sleep 0.05; done
}

# A process with a heap profile.
process()
{
    start_python 'import time
kept = [bytes(100000 + i) for i in range(300)]
print("ready", flush=True)
time.sleep(100000)'
}

# The same, while it allocates.
active()
{
    start_python 'import time
kept = [bytes(100000 + i) for i in range(300)]
print("ready", flush=True)
for i in range(10_000_000):
    kept[i % 300] = bytes(100000 + i)
    time.sleep(0.01)'
}

# A second is long enough for a reader's program to start, but not beside other tests: waits first until the last
# started process is the program itself, and no longer what starts it.
sleep()
{
    while [ -n "$!" ] && readlink "/proc/$!/exe" | grep -qE '/(python[0-9.]*|dash|bash|env|hakmem-run)$' &&
        [ "$!" != "${PID:-}" ]; do
        command sleep 0.05
    done
    command sleep "$@"
}

# A second is not enough for a server to listen, either.
redis-cli()
{
    until command redis-cli "$1" "$2" ping >/dev/null 2>&1; do command sleep 0.05; done
    command redis-cli "$@"
}
