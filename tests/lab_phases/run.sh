#!/usr/bin/env bash
# In the guest: the program under the policy of each way to begin a phase, verified, with and without huge pages.
set -u
for thp in always never; do
    echo $thp >/sys/kernel/mm/transparent_hugepage/enabled
    for how in call allocation time; do
        echo "=== $thp $how"
        numamma verify -p $how.toml -o verify.json -- ./moved $how 2>stderr.txt
        echo "--- status $?"
        cat verify.json
        echo "--- stderr"
        cat stderr.txt
    done
done
