#!/usr/bin/env bash
# In the guest: the program verified under the ways to bind it whose numbers are given (bindings.sh); with several
# numbers also on the CPUs of one node and of two. Before each run the CPUs that it is given.
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
    scene "${bindings[way]}" bound "$way"
done
[[ $* != *\ * ]] || {
    scene node taskset -c 2-3
    scene half env OMP_PROC_BIND=true taskset -c 2-5
}
