#!/bin/busybox sh
# given.sh WAY COMMAND...: says which nodes the CPUs of this process are on, by the kernel's word, then runs COMMAND
# with them in $NODES. Linked statically, so that no library of NumaMMA and no OpenMP runtime runs in it.
way=$1
shift
NODES=
for cpus in $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr , ' '); do
    for cpu in $(seq "${cpus%-*}" "${cpus#*-}"); do
        node=$(echo /sys/devices/system/cpu/cpu"$cpu"/node[0-9]*)
        case " $NODES " in *" ${node##*node} "*) ;; *) NODES="${NODES:+$NODES }${node##*node}" ;; esac
    done
done
export NODES
echo "=== way $way $NODES"
exec "$@"
