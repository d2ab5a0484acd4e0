#!/bin/sh
# checked.sh EXPECTED OUTPUT STATUS INPUT PROGRAM [ARGUMENT...]
#
# Runs PROGRAM on the allocator that BENCH_PRELOAD names, with the file INPUT as its standard input, and compares what
# it prints with the file EXPECTED, by way of the file OUTPUT. Only PROGRAM gets the allocator: this shell and cmp cost
# the same whichever it is. Ends with status 0 when PROGRAM ended with STATUS and the output is right, with status 1
# when the output is wrong, and otherwise as PROGRAM does, by the same status or signal.

expected=$1 output=$2 wanted=$3 input=$4
shift 4
LD_PRELOAD=$BENCH_PRELOAD "$@" <"$input" >"$output"
status=$?
if [ "$status" -gt 128 ]; then
    prlimit --core=0 --pid $$
    kill -"$((status - 128))" $$
fi
if [ "$status" -ne "$wanted" ]; then
    echo "checked.sh: $1: status $status" >&2
    [ "$status" -ne 0 ] || status=1
    exit "$status"
fi
if ! cmp "$output" "$expected" >&2; then
    echo "checked.sh: $1: wrong output" >&2
    exit 1
fi
# Emptied before the kernel comes to write it to the disk.
: >"$output"
