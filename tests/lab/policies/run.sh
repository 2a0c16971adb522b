#!/usr/bin/env bash
# In the guest: ./run.sh WAY: the program under every policy file in policies/, with and without huge pages, bound in
# turn in every way that leaves it all nodes: way number WAY and the next ones without huge pages, and with them those
# after half of all ways. So on machines with as many numbers WAY as half of all ways each policy is tried in each.
set -u
. ./bindings.sh
# Node 0 gets three pages for one of each other node where the kernel knows weights.
weights=/sys/kernel/mm/mempolicy/weighted_interleave
[[ ! -e $weights/node0 ]] || echo 3 >$weights/node0
# Five hugetlb pages are wanted, by some policies all on one node.
for node in /sys/devices/system/node/node*; do echo 6 >$node/hugepages/hugepages-2048kB/nr_hugepages; done
last=$(($(nproc) - 1))
for thp in always never madvise; do
    way=$1
    [[ $thp == never ]] || way=$((way + ${#bindings[@]} / 2))
    echo $thp >/sys/kernel/mm/transparent_hugepage/enabled
    for policy in policies/*.toml; do
        name=${policy##*/}
        [[ $thp != madvise || $name == want.toml ]] || continue
        echo "=== $thp ${name%.toml} $last"
        way=$((way + 1))
        # The blocks of bind-block are where the threads of OpenMP are, elsewhere in each way: see bound.rs.
        this=$way
        [[ $name != bind-block.toml ]] || this=0
        rm -f report.json
        LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=$policy NUMAMMA_REPORT=report.json \
            bound $this ./kinds $last 2>&1 || echo "--- exit status $?"
        echo "--- report"
        cat report.json
    done
done
