#!/bin/sh
# Runs in the guest: the whole path on one program, from profile to verify; every result on stdout behind a marker.
# path.sh THREADS ITERATIONS PROGRAM
set -e
threads=$1 iterations=$2 program=$3
export OMP_NUM_THREADS=$threads
./$program $iterations $threads > plain.out
numamma profile -q -o $program.prof -- ./$program $iterations $threads > profiled.out
numamma advise -q $program.prof --threads $threads > policy.toml
NUMAMMA_POLICY=policy.toml LD_PRELOAD=libnumamma-apply.so ./$program $iterations $threads > placed.out
status=0
numamma verify -q -o verify.json --policy policy.toml -- ./$program $iterations $threads > verified.out || status=$?
for f in profiled placed verified; do cmp plain.out $f.out && echo "=== same $f"; done
echo "=== verify-status $status"
echo "=== report"
numamma report --json $program.prof
echo
echo "=== policy"
cat policy.toml
echo "=== verify"
cat verify.json
echo
echo "=== text"
numamma report --color never $program.prof
