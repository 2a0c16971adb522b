#!/usr/bin/env bash
# In the guest: swap for fifteen pages, huge pages off, the program on node 0.
set -eu
dd if=/dev/zero of=/swap bs=4k count=16 2>/dev/null
chmod 600 /swap
mkswap /swap >/dev/null
swapon /swap
echo never >/sys/kernel/mm/transparent_hugepage/enabled
taskset -c 0 numamma verify -p reasons.toml -o report.json -- ./reasons || true
cat report.json
