#!/usr/bin/env bash
# Runs in the guest: every scene of truth.c under the meter, one run each; what they print on stdout.
set -e
metered() {
    local name=$1
    shift
    echo "=== $name"
    meter-mark --name "$name" "$@"
}
metered matrix ./truth matrix
metered resident ./truth resident
metered window --from phase --until after ./truth window
metered during --during phase ./truth window
# Another process at work at the same time, on the same CPU.
./truth matrix >/dev/null &
metered objects ./truth objects
wait
metered ping ./truth ping
metered turns --from round_after_round ./truth turns
metered alone --from round_after_round ./truth alone
metered queue --during stream ./truth queue
metered own --from stream ./truth own
metered near --during follow ./truth chase 0
metered far --during follow ./truth chase 3
# The one program among several that is asked for, and the command's own exit status.
status=0
several='cat /proc/self/maps >/dev/null; ./truth window >/dev/null; exit 7'
meter-mark --name only --exec truth -- sh -c "$several" || status=$?
echo "=== status $status"
