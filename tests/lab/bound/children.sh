#!/usr/bin/env bash
# In the guest, 4 nodes of one CPU: the program that starts processes in all ways, bare and with each policy. Arguments:
# the policies.
set -uo pipefail
run() {
    echo "=== bound"
    "$@" 2>&1 >out | grep -v '^numamma: ' | sort || echo "exit status $?"
    echo "=== out"
    cat out
}
export OMP_WAIT_POLICY=passive
echo "+++ bare"
run ./children
for policy in "$@"; do
    echo "+++ $policy"
    run env LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY="$policy.toml" ./children
done
echo "+++ run"
run numamma run --policy "$1.toml" -- ./children
