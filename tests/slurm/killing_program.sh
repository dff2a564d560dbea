#!/bin/bash
# Stands in for a program of Slurm. At the call whose number is in $KILL_AT it kills who has called it: before the
# program runs, while it runs (it does its work after the death of its caller), or after it.
program=$(basename "$0")
real=$(PATH=${PATH#*:} command -v "$program")
echo "$program" >> "$CALLS"
if [ "$(wc -l < "$CALLS")" != "$KILL_AT" ]; then exec "$real" "$@"; fi
case $KILL_WHEN in
before)
    kill -KILL "$PPID"
    ;;
while)
    kill -KILL "$PPID"
    sleep 1
    exec "$real" "$@"
    ;;
after)
    "$real" "$@"
    kill -KILL "$PPID"
    ;;
esac
