#!/usr/bin/env bash
# In the guest: verified.sh PROGRAM SHORT THREADS: the program under verify, the status, the answer.
status=0
numamma verify -q -o verify.json --policy policy.toml -- ./"$1" "$2" "$3" > verified.out || status=$?
cmp plain.out verified.out && echo same
echo "status $status"
cat verify.json
