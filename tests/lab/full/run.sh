#!/usr/bin/env bash
# In the guest: a neighbour leaves 12 MiB of node 1, then the program runs under verify and placed strictly.
set -u
run() {
    local name=$1
    shift
    echo "=== $name"
    ./full 12 >filled &
    local neighbour=$!
    export NEIGHBOUR=1
    until grep -q filled filled; do sleep 0.2; done
    "$@" 2>&1
    echo "status $?"
    if kill -0 $neighbour 2>/dev/null; then echo neighbour lives; else echo neighbour is dead; fi
    kill -9 $neighbour 2>/dev/null
    wait $neighbour 2>/dev/null
    rm -f filled go given
}
echo "=== bare"
./full
run verify numamma verify -p full.toml -o report.json -- ./full
echo "--- report"
cat report.json
# The kernel may kill anything that has memory on the node; usually the neighbour first.
run strict env LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=strict.toml ./full
