#!/usr/bin/env bash
# In the guest: the program under every policy file in policies/, with and without huge pages.
set -u
# Node 0 gets three pages for one of each other node where the kernel knows weights.
weights=/sys/kernel/mm/mempolicy/weighted_interleave
[[ ! -e $weights/node0 ]] || echo 3 >$weights/node0
last=$(($(nproc) - 1))
for thp in always never madvise; do
    echo $thp >/sys/kernel/mm/transparent_hugepage/enabled
    for policy in policies/*.toml; do
        name=${policy##*/}
        [[ $thp != madvise || $name == want.toml ]] || continue
        echo "=== $thp ${name%.toml} $last"
        rm -f report.json
        LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=$policy NUMAMMA_REPORT=report.json \
            taskset -c $last ./kinds 2>&1 || echo "--- exit status $?"
        echo "--- report"
        cat report.json
    done
done
