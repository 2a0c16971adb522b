#!/usr/bin/env bash
# In the guest, 4 nodes of one CPU: each line of scenes is a policy, how it is started, and the program's arguments.
set -u
scene() {
    echo "=== $1"
    policy=$2
    shift 2
    NUMAMMA_REPORT=report.json NUMAMMA_POLICY=$policy.toml "$@" 2>&1 || echo "exit status $?"
    tr -d '\n' <report.json
    echo
}
export LD_PRELOAD=libnumamma-apply.so
scene seen bind-block ./pinned 4 3 2 1 0
scene places bind-block env OMP_PLACES='{3},{2},{1},{0}' ./pinned 4
scene explicit explicit ./pinned 4
scene scatter scatter ./pinned 4
scene all all taskset -c 2-3 ./pinned 1
scene relative relative taskset -c 2-3 ./pinned 1
scene numbers numbers taskset -c 2-3 ./pinned 1
scene whole all ./pinned 1
echo "=== deep"
NUMAMMA_POLICY=across.toml ./deep 2>&1
