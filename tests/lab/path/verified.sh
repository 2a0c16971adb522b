#!/usr/bin/env bash
# In the guest: verified.sh PROGRAM SHORT THREADS: the program under verify, the status, how many warnings, the answer.
status=0
numamma verify -q -o verify.json --policy policy.toml -- ./"$1" "$2" "$3" > verified.out 2> verify.err || status=$?
cmp plain.out verified.out && echo same
echo "status $status"
echo "warnings $(grep -c warning: verify.err)"
cat verify.json
