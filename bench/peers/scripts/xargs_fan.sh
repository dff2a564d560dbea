#!/bin/bash
# xargs: COUNT shells `true`, PARALLEL at a time, each with log files of its own; then one more, the join.
set -eu
step='exec >"$1.out" 2>"$1.err"; true'
seq "$1" | xargs -P "$2" -n 1 bash -c "$step" step
bash -c "$step" step join
