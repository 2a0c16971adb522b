#!/usr/bin/env bash
# demo-place.sh PROGRAM ITERATIONS POLICY: the program unplaced, then placed, then verified, with its pages per node
# as the kernel shows them in /proc/PID/numa_maps, which knows nothing of NumaMMA. Run by demo.sh, here or in the lab.
set -uo pipefail
program=$1 iterations=$2 policy=$3

# watch_pages LABEL COMMAND...: runs it and prints the pages per node when it had most of them.
watch_pages() {
    local label=$1 pid sample best='' most=-1 total status
    shift
    "$@" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        # Anonymous pages: data, heap and stacks, not the files that are mapped.
        sample=$(awk '/ anon=/ { for (i = 3; i <= NF; i++) if ($i ~ /^N[0-9]+=/) {
                split(substr($i, 2), p, "="); n[p[1]] += p[2]; if (p[1] + 0 > last) last = p[1] + 0; all += p[2] } }
            END { printf "%d", all; for (i = 0; i <= last; i++) printf "  node %d: %d", i, n[i] }' \
            "/proc/$pid/numa_maps" 2>/dev/null) || sample='0'
        total=${sample%% *}
        if ((total >= most)); then most=$total best=$sample; fi
        sleep 0.2
    done
    wait "$pid"
    status=$?
    printf 'pages per node, %s:%s\n' "$label" "${best#"$most"}"
    return "$status"
}

echo "\$ $program $iterations"
watch_pages unplaced "$program" "$iterations" || exit
echo
echo "\$ LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=$policy $program $iterations"
watch_pages placed env LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY="$policy" "$program" "$iterations" || exit
echo
echo "\$ numamma verify --policy $policy -- $program $iterations"
# Its table goes to stderr, as all diagnostics do.
numamma verify --policy "$policy" -- "$program" "$iterations" 2>&1
