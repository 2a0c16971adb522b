#!/usr/bin/env bash
# In the guest: the program under the policy of each way to begin a phase, verified, with huge pages and without.
# run.sh WAY...: bound in each of these ways (bindings.sh); the next way to begin, and huge pages or not, with each.
set -u
. ./bindings.sh
hows=(call allocation time) thps=(always never) run=0
for way; do
    thp=${thps[run % 2]} how=${hows[run % 3]}
    run=$((run + 1))
    echo $thp >/sys/kernel/mm/transparent_hugepage/enabled
    rm -f verify.json
    bound "$way" ./given.sh "$way" ./verified.sh "$thp" "$how"
done
# Unbound only: all nodes are named, and the kernel hides pages where it may move the thread between nodes.
# Four for each node, of which the program binds eight to one.
echo 16 >/proc/sys/vm/nr_hugepages
echo 1 >/proc/sys/kernel/numa_balancing
echo always >/sys/kernel/mm/transparent_hugepage/enabled
numamma verify -p kinds.toml -o verify.json -- ./kinds >kinds.txt 2>&1
echo "+++ kinds $?"
cat kinds.txt
