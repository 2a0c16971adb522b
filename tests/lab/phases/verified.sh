#!/usr/bin/env bash
# In the guest: verified.sh THP HOW: the program, and what was said of it.
echo "--- $1 $2"
numamma verify -p "$2.toml" -o verify.json -- ./moved "$2" 2>stderr.txt
echo "--- status $?"
cat verify.json
echo "--- stderr"
cat stderr.txt
