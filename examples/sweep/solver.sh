#!/bin/sh
# A simulated solver: solver.sh GRID ANGLE. The same parameters break it in the same way every time.
set -eu
grid=$1 angle=$2
read -r cells < "mesh_$grid.txt"

case $grid-$angle in
    coarse-17 | medium-58 | fine-71)
        # The first attempt crashes, like a solver with a race condition.
        if [ "$MULLIGAN_ATTEMPT" = 1 ]; then
            echo "segmentation fault in assemble()" >&2
            exit 11
        fi ;;
    coarse-40 | fine-9)
        # Another user of the machine kills it.
        [ "$MULLIGAN_ATTEMPT" -gt 1 ] || kill -KILL $$ ;;
    fine-90 | fine-95)
        # A matrix of 48 MB. It exists for a moment, so that it can be measured.
        { head -c 48000000 /dev/zero; sleep 0.7; } | tail -n 1 > /dev/null ;;
    coarse-5 | coarse-8)
        # More iterations than usual.
        sleep 2.5 ;;
    *-99)
        # Not solvable with these settings, however often it is retried.
        if ! grep -q damping solver.conf 2> /dev/null; then
            echo "iteration 100: residual 4.1e+07, diverged" >&2
            exit 3
        fi ;;
esac

echo "{\"lift\": $((angle * (180 - angle) / 4)), \"drag\": $((20 + angle * angle / 20 + 10000 / cells))}"
