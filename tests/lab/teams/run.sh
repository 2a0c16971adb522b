#!/usr/bin/env bash
# Runs in the guest: profile, advise, report, place and verify programs whose workers are known; every result behind a
# marker. The verified run is bound in a way of bindings.sh. run.sh NAME STEPS WAY...
set -e
. ./bindings.sh
while [ $# -gt 0 ]; do
    name=$1 steps=$2 way=$3
    shift 3
    ./"$name" "$steps" | grep sum > "$name.plain"
    numamma profile -q -o "$name.prof" -- ./"$name" "$steps" > /dev/null
    numamma advise -q "$name.prof" > "$name.toml"
    echo "=== $name policy"
    cat "$name.toml"
    echo "=== $name report"
    numamma report --json "$name.prof"
    echo
    echo "=== $name placed"
    NUMAMMA_POLICY=$name.toml LD_PRELOAD=libnumamma-apply.so ./"$name" "$steps" > placed.out
    cat placed.out
    grep sum placed.out | cmp - "$name.plain" && echo "=== $name same"
    echo "=== $name verify"
    bound "$way" numamma verify -q -o verify.json --policy "$name.toml" -- ./"$name" "$steps" \
        > /dev/null 2> verify.err || cat verify.err
    cat verify.json
    echo
    echo "=== $name by-user"
    OMP_PROC_BIND=false NUMAMMA_POLICY=$name.toml LD_PRELOAD=libnumamma-apply.so ./"$name" "$steps"
done
echo "=== end"
