#!/usr/bin/env bash
# Runs in the guest: each program of `list` (name, function, arguments) under the meter, bound and unplaced, then placed;
# what they print on stdout.
set -e
export OMP_NUM_THREADS=8
while read -r name function arguments; do
    # OpenMP's main thread is on the first CPU from the beginning. The policy binds other threads, unless these are set.
    unset OMP_PROC_BIND OMP_PLACES
    ! grep -q '^openmp' "$name.placed.toml" || export OMP_PROC_BIND=true OMP_PLACES='{0}:8'
    for kind in first placed; do
        echo "=== $name $kind"
        # shellcheck disable=SC2086
        LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=$name.$kind.toml \
            meter-mark --name "$name $kind" --during "$function" "./$name" $arguments 2>&1
    done
done <list
