#!/usr/bin/env bash
# In the guest: the program bare, and placed by each policy.
set -u
run() {
    local preload=(env LD_PRELOAD=libnumamma-apply.so "NUMAMMA_POLICY=$1.toml")
    [ "$1" = bare ] && preload=()
    ${preload[@]+"${preload[@]}"} "$2" 2>&1
}
echo "mode $(cat /proc/sys/vm/overcommit_memory)"
for policy in bare "$@"; do
    echo "=== $policy"
    run "$policy" ./counted
    echo "status $?"
done
# Pages of registered buffers are pinned: they stay where they are when a phase begins.
for policy in bare "$@"; do
    echo "=== ring $policy"
    run "$policy" ./ring
    echo "status $?"
done
