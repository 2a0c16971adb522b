#!/usr/bin/env bash
# In the guest: both programs bare and placed. What they write to stderr follows in the same part.
set -u
for run in "moved" "churn $LAST"; do
    read -r name _ <<<"$run"
    echo "=== $name bare"
    # shellcheck disable=SC2086 # a word for each argument
    ./$run 2>&1 || echo "exit status $?"
    echo "=== $name placed"
    # shellcheck disable=SC2086
    LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=$name.toml NUMAMMA_REPORT=report.json ./$run 2>&1 ||
        echo "exit status $?"
    echo "=== $name report"
    cat report.json
done
