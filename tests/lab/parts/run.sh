#!/usr/bin/env bash
# Runs in the guest: profiles a program whose variables have members that are used differently, advises, then places and
# verifies it in each of the ways of bindings.sh; every result behind a marker.
# The profile needs samples; the other runs need each page touched once, so they have arguments for few steps.
# run.sh "WAY..." THREADS NAME "ARGUMENTS" "SHORT"
set -e
# Blocks end where slices do, not at huge pages.
echo never > /sys/kernel/mm/transparent_hugepage/enabled
export OMP_NUM_THREADS=$2
ways=$1 name=$3 arguments=$4 short=$5
./"$name" $short > plain
numamma profile -q -o "$name.prof" -- ./"$name" $arguments > /dev/null
numamma advise -q "$name.prof" > "$name.toml"
echo "=== policy"
cat "$name.toml"
echo "=== report"
numamma report --json "$name.prof"
echo
./ways.sh "$ways" ./placed.sh "$name" "$short"
