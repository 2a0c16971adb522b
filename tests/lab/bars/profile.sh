#!/usr/bin/env bash
# Runs in the guest: profiles each program of `list` (name, arguments); the profiles in hexadecimal on stdout.
set -e
export OMP_NUM_THREADS=8
while read -r name arguments; do
    # shellcheck disable=SC2086
    numamma profile -q -F 1000 -o "$name.prof" -- "./$name" $arguments >/dev/null 2>&1
    echo "=== $name"
    od -An -v -tx1 "$name.prof"
done <list
