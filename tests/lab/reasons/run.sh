#!/usr/bin/env bash
# In the guest: the program, with swap for fifteen pages, huge pages off and no pages of its file from a run before.
set -eu
if [[ ! -e /swap ]]; then
    dd if=/dev/zero of=/swap bs=4k count=16 2>/dev/null
    chmod 600 /swap
    mkswap /swap >/dev/null
    swapon /swap
fi
rm -f overlay
echo never >/sys/kernel/mm/transparent_hugepage/enabled
numamma verify -p reasons.toml -o report.json -- ./reasons 2>words || true
cat report.json
echo "--- words"
cat words
