#!/usr/bin/env bash
# Runs in the guest: the whole path on one program, from profile to verify; every result on stdout behind a marker.
# The placed run is bound in the first of the ways, and there is a verified run for each (bindings.sh).
# The profile needs samples; the other runs need each page touched once, so they have fewer iterations.
# path.sh THREADS ITERATIONS SHORT PROGRAM WAY...
set -e
. ./bindings.sh
threads=$1 iterations=$2 short=$3 program=$4
shift 4
export OMP_NUM_THREADS=$threads
./$program $short $threads > plain.out
numamma profile -q -o $program.prof -- ./$program $iterations $threads > /dev/null
numamma advise -q $program.prof --threads $threads > policy.toml
NUMAMMA_POLICY=policy.toml LD_PRELOAD=libnumamma-apply.so bound "$1" ./$program $short $threads > placed.out
cmp plain.out placed.out && echo "=== same placed"
echo "=== report"
numamma report --json $program.prof
echo
echo "=== policy"
cat policy.toml
echo "=== text"
numamma report --color never $program.prof
./ways.sh "$*" ./verified.sh "$program" "$short" "$threads"
