#!/bin/sh
# shell.sh TEXT ROUNDS: what a build or a cron job does: short programs, one after another and in pipelines.

text=$1 rounds=$2
while [ "$rounds" -gt 0 ]; do
    sed -n "${rounds},$((rounds + 200))p" "$text" | tr ' ' '\n' | sort | uniq -c | sort -rn | head -n 3
    name=$(basename "$(dirname "$text")")
    count=$(sed -n "${rounds}p" "$text" | wc -w)
    printf "%s\n" "$count" | od -c | head -n 1
    sed -n "${rounds}p" "$text" | awk '{ for (i = NF; i > 0; i--) printf "%s ", $i; print NF }' | cut -c 1-40
    grep -c "$(sed -n "${rounds}p" "$text" | cut -d ' ' -f 1)" "$text"
    [ "$name" = words ] || exit 1
    rounds=$((rounds - 1))
done
