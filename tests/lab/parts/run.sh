#!/usr/bin/env bash
# Runs in the guest: profile, advise, place and verify programs whose variables have members that are used differently;
# every result behind a marker. The programs show where their own pages are when they get one more argument.
# run.sh THREADS NAME "ARGUMENTS" ...
set -e
# Blocks end where slices do, not at huge pages.
echo never > /sys/kernel/mm/transparent_hugepage/enabled
export OMP_NUM_THREADS=$1
shift
while [ $# -gt 0 ]; do
    name=$1 arguments=$2
    shift 2
    ./"$name" $arguments > "$name.plain"
    numamma profile -q -o "$name.prof" -- ./"$name" $arguments > "$name.profiled"
    numamma advise -q "$name.prof" > "$name.toml"
    echo "=== $name policy"
    cat "$name.toml"
    echo "=== $name report"
    numamma report --json "$name.prof"
    echo
    echo "=== $name predict"
    numamma predict --json "$name.prof" --policy "$name.toml" || true
    echo "=== $name placed"
    NUMAMMA_POLICY=$name.toml LD_PRELOAD=libnumamma-apply.so ./"$name" $arguments show > placed.out
    cat placed.out
    for run in "$name.profiled" placed.out; do
        grep '^sum' "$run" | cmp - "$name.plain" && echo "=== $name same $run"
    done
    echo "=== $name verify"
    numamma verify -q -o verify.json --policy "$name.toml" -- ./"$name" $arguments > /dev/null 2> verify.err ||
        cat verify.err
    cat verify.json
    echo
done
echo "=== end"
