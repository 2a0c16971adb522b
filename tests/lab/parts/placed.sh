#!/usr/bin/env bash
# In the guest: placed.sh NAME "SHORT": places and verifies the program, which shows where its own pages are when it
# gets one more argument.
name=$1 short=$2
NUMAMMA_POLICY=$name.toml LD_PRELOAD=libnumamma-apply.so ./"$name" $short show > placed.out
cat placed.out
grep '^sum' placed.out | cmp - plain && echo "--- same output"
echo "--- verify"
numamma verify -q -o verify.json --policy "$name.toml" -- ./"$name" $short > /dev/null 2> verify.err || cat verify.err
cat verify.json
