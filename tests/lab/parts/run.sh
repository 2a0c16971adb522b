#!/usr/bin/env bash
# Runs in the guest: profile, advise, place and verify programs whose variables have members that are used differently;
# every result behind a marker. The programs show where their own pages are when they get one more argument.
# The profile needs samples; the other runs need each page touched once, so they have arguments for few steps.
# run.sh THREADS NAME "ARGUMENTS" "SHORT" ...
set -e
# Blocks end where slices do, not at huge pages.
echo never > /sys/kernel/mm/transparent_hugepage/enabled
export OMP_NUM_THREADS=$1
shift
while [ $# -gt 0 ]; do
    name=$1 arguments=$2 short=$3
    shift 3
    ./"$name" $short > "$name.plain"
    numamma profile -q -o "$name.prof" -- ./"$name" $arguments > /dev/null
    numamma advise -q "$name.prof" > "$name.toml"
    echo "=== $name policy"
    cat "$name.toml"
    echo "=== $name report"
    numamma report --json "$name.prof"
    echo
    echo "=== $name predict"
    numamma predict --json "$name.prof" --policy "$name.toml" || true
    echo "=== $name placed"
    NUMAMMA_POLICY=$name.toml LD_PRELOAD=libnumamma-apply.so ./"$name" $short show > placed.out
    cat placed.out
    grep '^sum' placed.out | cmp - "$name.plain" && echo "=== $name same output"
    echo "=== $name verify"
    numamma verify -q -o verify.json --policy "$name.toml" -- ./"$name" $short > /dev/null 2> verify.err ||
        cat verify.err
    cat verify.json
    echo
done
echo "=== end"
