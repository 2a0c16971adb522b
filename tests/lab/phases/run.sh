#!/usr/bin/env bash
# In the guest: the program under the policy of each way to begin a phase, verified, with huge pages and,
# bound in three ways, without.
set -u
. ./bindings.sh
way=0
for thp in always never; do
    echo $thp >/sys/kernel/mm/transparent_hugepage/enabled
    for how in call allocation time; do
        echo "=== $thp $how"
        [[ $thp != never ]] || way=$((way + 2))
        bound $way numamma verify -p $how.toml -o verify.json -- ./moved $how 2>stderr.txt
        echo "--- status $?"
        cat verify.json
        echo "--- stderr"
        cat stderr.txt
    done
done
# Four for each node, of which the program binds eight to one.
echo 16 >/proc/sys/vm/nr_hugepages
echo 1 >/proc/sys/kernel/numa_balancing
echo always >/sys/kernel/mm/transparent_hugepage/enabled
numamma verify -p kinds.toml -o verify.json -- ./kinds >kinds.txt 2>&1
echo "+++ kinds $?"
cat kinds.txt
