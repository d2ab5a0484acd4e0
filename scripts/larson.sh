#!/bin/sh
# scripts/larson.sh [PROFILE]: builds larson and runs it with a profile's arguments and settings: on HAKMEM, and beside
# it on the system's allocator and on mimalloc, if `./hakmem peers build mimalloc2` or MIMALLOC=FILE has that.
set -eu
cd "$(dirname "$0")/.."

usage() {
    cat <<'END'
usage: scripts/larson.sh [PROFILE]
  single    one thread: larson 2 8 128 1024 1 12345 1
  4t        four threads: larson 2 8 128 1024 1 12345 4 (the default)
  tiny      four threads, blocks of 8 to 64 bytes: larson 2 8 64 1024 1 12345 4
  counters  four threads, on HAKMEM with its debug counters (the flavor debug)
LARSON_SECONDS=N runs each for N seconds in place of 2.
END
}

profile=${1:-4t} seconds=${LARSON_SECONDS:-2}
if [ $# -gt 1 ]; then
    usage >&2
    exit 2
fi
case $profile in
single) set -- "$seconds" 8 128 1024 1 12345 1 ;;
4t | counters) set -- "$seconds" 8 128 1024 1 12345 4 ;;
tiny) set -- "$seconds" 8 64 1024 1 12345 4 ;;
-h | --help)
    usage
    exit 0
    ;;
*)
    echo "larson.sh: there is no profile '$profile'" >&2
    usage >&2
    exit 2
    ;;
esac

# run NAME FLAVOR ARGUMENTS: builds the program NAME, and runs it.
run() {
    name=$1 flavor=$2
    shift 2
    make --no-print-directory "$name" BUILD_FLAVOR="$flavor" >&2
    echo "== $name $* ($flavor)"
    ./"$name" "$@"
}

if [ "$profile" = counters ]; then
    HAKMEM_DEBUG_COUNTERS=1 run larson_hakmem debug "$@"
    exit
fi
run larson_hakmem release "$@"
run larson_system release "$@"
if [ -f "${MIMALLOC:-${HAKMEM_PEERS_DIR:-build/peers}/mimalloc2/libmimalloc2.so}" ]; then
    run larson_mi release "$@"
else
    echo "== larson_mi: left out; './hakmem peers build mimalloc2' makes mimalloc, or name it by MIMALLOC=FILE"
fi
