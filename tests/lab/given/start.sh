#!/bin/busybox sh
# Prints to $OUT.RANK what the kernel gives a process at this place, then starts the program there under the policy.
# Linked statically, so that no library of NumaMMA runs in it.
exec >>"$OUT.${OMPI_COMM_WORLD_RANK:-0}" 2>&1
echo "given $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)" \
    "$(sed -n 's/^Mems_allowed_list:[[:space:]]*//p' /proc/self/status)" \
    "$(sed -n 's/^[^ ]* \([^ ]*\) .*\[stack\].*/\1/p;s/^[^ ]* \([^ ]*\) stack.*/\1/p' /proc/self/numa_maps)"
exec env LD_PRELOAD="$PRELOAD" NUMAMMA_POLICY="$POLICY" "$@"
