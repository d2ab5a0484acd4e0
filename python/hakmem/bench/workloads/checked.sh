#!/bin/sh
# checked.sh EXPECTED OUTPUT PROGRAM [ARGUMENT...]
#
# Runs PROGRAM on the allocator that BENCH_PRELOAD names and compares what it prints with the file EXPECTED, by way of
# the file OUTPUT. Only PROGRAM gets the allocator: this shell and cmp cost the same whichever it is. Ends as PROGRAM
# does, by the same status or signal, or with status 1 when the output is wrong.

expected=$1 output=$2
shift 2
LD_PRELOAD=$BENCH_PRELOAD "$@" </dev/null >"$output"
status=$?
if [ "$status" -gt 128 ]; then
    prlimit --core=0 --pid $$
    kill -"$((status - 128))" $$
fi
if [ "$status" -ne 0 ]; then
    exit "$status"
fi
if ! cmp "$output" "$expected" >&2; then
    echo "checked.sh: $1: wrong output" >&2
    exit 1
fi
# Emptied before the kernel comes to write it to the disk.
: >"$output"
