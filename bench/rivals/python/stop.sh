#!/usr/bin/env bash
# stop.sh: ends what start.sh started with the same DATA.
data=${DATA:?the folder of start.sh}
[ -e "$data/pids" ] || exit 0
mapfile -t pids <"$data/pids"
kill "${pids[@]}" 2>/dev/null
for ((tenths = 0; tenths < 100; tenths++)); do
    kill -0 "${pids[@]}" 2>/dev/null || break
    sleep 0.1
done
kill -KILL "${pids[@]}" 2>/dev/null
rm -f "$data/pids"
exit 0
