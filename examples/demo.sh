#!/usr/bin/env bash
# make demo: the whole path on a real program, with its pages before and after.
#
# The program (tests/programs/lu.f90) initialises two large arrays in its main thread and then works on
# slices of them in every thread, again and again: first touch puts all of it on one node.
# Profile, report and advice are made here. The placement is shown here too when this machine has several
# NUMA nodes, else in the lab: a QEMU guest with four, under a stock Debian kernel.
set -euo pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/.."

target=$(readlink -m -- "${CARGO_TARGET_DIR:-target}")
numamma=$target/release/numamma
program=$target/programs/lu
out=$target/demo
threads=8
# Enough for some thousand samples here; few in the lab, where every instruction is emulated.
profiled_iterations=${DEMO_ITERATIONS:-200} lab_iterations=3

title() { printf '\n=== %s\n' "$*"; }
shown() { printf '$ %s\n' "$*"; }
fail() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

[[ -x $numamma ]] || fail "numamma is not built: make demo builds it"
[[ -x $program ]] || fail "$program is not built: it needs gfortran (apt-get install gfortran), then make programs"
mkdir -p "$out"
export OMP_NUM_THREADS=$threads OMP_WAIT_POLICY=passive
nodes=$(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' 2>/dev/null | wc -l)
here=yes
if ((nodes < 2)); then here=no nodes=4; fi

title "1. Profile one run, as it is (some 10 seconds)"
shown "numamma profile -o lu.prof -- ./lu $profiled_iterations"
"$numamma" profile -o "$out/lu.prof" -- "$program" "$profiled_iterations"

title "2. Which objects were hot, and which threads used them"
shown "numamma report lu.prof"
"$numamma" report "$out/lu.prof"

title "3. Where each hot object should go on $nodes nodes, and why"
shown "numamma advise lu.prof --nodes $nodes --threads $threads > policy.toml"
"$numamma" advise "$out/lu.prof" --nodes "$nodes" --threads "$threads" >"$out/policy.toml"

if [[ $here == yes ]]; then
    title "4. Run it placed, on this machine's $nodes nodes"
    status=0
    (
        cd "$out"
        PATH=$target/release:$PATH LD_LIBRARY_PATH=$out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export PATH LD_LIBRARY_PATH
        # Under the names they have once installed.
        mkdir -p lib
        ln -sf "$target/release/libnumamma_preload_apply.so" lib/libnumamma-apply.so
        bash "$OLDPWD/examples/demo-place.sh" "$program" "$profiled_iterations" policy.toml
    ) | tee "$out/placed.txt" || status=$?
else
    title "4. Run it placed, in a QEMU guest with $nodes nodes (this machine has one; half a minute)"
    status=0
    tests/lab/lab --nodes "$nodes" --cpus-per-node 2 --add "$program" --add "$out/policy.toml" \
        --add examples/demo-place.sh -- env OMP_NUM_THREADS=$threads OMP_WAIT_POLICY=passive \
        ./demo-place.sh ./lu "$lab_iterations" policy.toml | tee "$out/placed.txt" || status=$?
    ((status != 125)) || fail "the placement part needs the lab: see above, or run on a machine with several nodes"
fi

title "In short"
# The policy says for each object what it is, where it goes and why.
awk '
    /^\[\[object\]\]/ { name = "" }
    /^(global|function|callsite) = / { if (name == "") { name = $0; sub(/^[a-z]* = /, "", name) } }
    /^place = / { place = $0; sub(/^place = /, "", place) }
    /^why = / { why = $0; sub(/^why = /, "", why); printf "  %s\n    hot and placed because: %s\n    placed: %s\n", name, why, place }
' "$out/policy.toml"
sed -n -e 's/^pages per node, unplaced: /  pages per node before: /p' -e 's/^pages per node, placed: /  pages per node after:  /p' \
    "$out/placed.txt"
((status == 0)) || fail "the placed run is not on plan (status $status): see section 4"
echo "  numamma verify asked the kernel for the node of every page of these objects: every page is on plan."
echo "  Files: $out/lu.prof, $out/policy.toml"
