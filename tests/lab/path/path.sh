#!/usr/bin/env bash
# Runs in the guest: the whole path on one program, from profile to verify; every result on stdout behind a marker.
# The placed runs are bound in the ways of bindings.sh with the numbers WAY and WAY + 1.
# The profile needs samples; the other runs need each page touched once, so they have fewer iterations.
# path.sh THREADS ITERATIONS SHORT PROGRAM WAY
set -e
. ./bindings.sh
threads=$1 iterations=$2 short=$3 program=$4 way=$5
export OMP_NUM_THREADS=$threads
./$program $short $threads > plain.out
numamma profile -q -o $program.prof -- ./$program $iterations $threads > /dev/null
numamma advise -q $program.prof --threads $threads > policy.toml
NUMAMMA_POLICY=policy.toml LD_PRELOAD=libnumamma-apply.so bound "$way" ./$program $short $threads > placed.out
status=0
bound $((way + 1)) numamma verify -q -o verify.json --policy policy.toml -- ./$program $short $threads \
    > verified.out 2> verify.err || status=$?
for f in placed verified; do cmp plain.out $f.out && echo "=== same $f"; done
echo "=== verify-status $status"
echo "=== warnings $(grep -c warning: verify.err || true)"
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
