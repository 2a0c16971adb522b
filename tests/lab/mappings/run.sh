#!/usr/bin/env bash
# In the guest: the program beside each mode, with mappings of its own after and before its objects.
set -u
for how in "policy last" "policy first" "populate last"; do
    read -r mode when <<<"$how"
    echo "=== $how"
    LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=$mode.toml NUMAMMA_REPORT=report.json \
        ./crowd "$OWN" "$when" 2>&1 || echo "exit status $?"
    echo "--- report"
    cat report.json
done
