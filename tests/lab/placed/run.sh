#!/usr/bin/env bash
# In the guest: the program verified in each of the ways to bind it that are given (bindings.sh); with all of them also
# bound on the CPUs of two nodes. Before each run the CPUs that it is given.
set -u
. ./bindings.sh
scene() {
    echo "=== $1"
    shift
    "$@" sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status
    "$@" numamma verify -p placed.toml -- ./placed 8 2>stderr.txt || cat stderr.txt
    echo "--- $(grep -c warning: stderr.txt)"
}
for way; do
    scene "$way" bound "$way"
done
(($# < 12)) || scene half env OMP_PROC_BIND=true taskset -c 2-5
