#!/bin/sh
test -e "$1.conf" || { echo "there is no $1.conf" >&2; exit 1; }
echo "deployed to $1"
