#!/bin/sh
# Makes the mesh that is simulated, too: mesh.sh GRID prints how many cells it has.
case $1 in
    coarse) echo 1000 ;;
    medium) echo 4000 ;;
    fine) echo 16000 ;;
    *) echo "no such grid: $1" >&2; exit 1 ;;
esac
