#!/usr/bin/env bash
# In the guest, 4 nodes of 2 CPUs: the program under every way to bind it. Arguments: the scenes that are run with all
# children; `all` for every scene.
set -u
export OUT=$PWD/out PRELOAD=libnumamma-apply.so POLICY=$PWD/given.toml OMP_WAIT_POLICY=passive
for node in /sys/devices/system/node/node[0-9]*; do
    echo "node ${node##*node} $(<$node/cpulist)"
done
wanted=" $* "

# scene NAME COMMAND...
scene() {
    local name=$1 rank
    shift
    rm -f out.*
    export BRIEF=1
    [[ $wanted == *" all "* || $wanted == *" $name "* ]] && unset BRIEF
    "$@" >messages 2>&1 || echo "exit status $?" >>messages
    for rank in out.*; do
        echo "=== $name"
        cat "$rank" messages
    done
}
# Two ranks on two nodes.
mpi() { mpirun --allow-run-as-root --mca plm isolated --map-by numa -n 2 "$@"; }
# A cpuset of two nodes, where the kernel has cgroup v2 with the controller.
in_cpuset() {
    local group=/sys/fs/cgroup/half
    mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
    echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control && mkdir -p $group &&
        echo 2-5 >$group/cpuset.cpus && echo 1-2 >$group/cpuset.mems || return
    (echo $BASHPID >$group/cgroup.procs && exec "$@")
}

scene unbound ./start.sh ./given
for bind in true close spread; do
    scene bind-$bind env OMP_PROC_BIND=$bind ./start.sh ./given
done
for places in cores sockets; do
    scene places-$places env OMP_PLACES=$places ./start.sh ./given
done
scene gomp env GOMP_CPU_AFFINITY=0-7 ./start.sh ./given
scene gomp-last env GOMP_CPU_AFFINITY=7 ./start.sh ./given
scene node taskset -c 2-3 ./start.sh ./given
scene node-bind env OMP_PROC_BIND=true taskset -c 4-5 ./start.sh ./given
scene half-bind env OMP_PROC_BIND=close taskset -c 2-5 ./start.sh ./given
scene all-cpus taskset -c 0-7 ./start.sh ./given
scene all-bind env OMP_PROC_BIND=spread taskset -c 0-7 ./start.sh ./given
# taskset under the library, from a shell under the library: what it sets is meant.
scene inner ./start.sh /usr/bin/taskset -c 6-7 ./start.sh ./given
scene inner-bind env OMP_PROC_BIND=true ./start.sh /usr/bin/taskset -c 6-7 ./start.sh ./given
scene membind ./under bind 6 ./start.sh ./given
scene membind-bind env OMP_PROC_BIND=true ./under bind 6 ./start.sh ./given
scene membind-elsewhere env OMP_PROC_BIND=true taskset -c 0-1 ./under bind c ./start.sh ./given
scene preferred env OMP_PROC_BIND=true ./under preferred 4 ./start.sh ./given
scene interleave env OMP_PROC_BIND=true ./under interleave 3 ./start.sh ./given
scene cpuset in_cpuset ./start.sh ./given
scene cpuset-bind in_cpuset env OMP_PROC_BIND=true ./start.sh ./given
# A runtime that binds by a raw system call in a constructor; one that is loaded by main.
scene raw ./start.sh ./given-raw
scene raw-node taskset -c 0-1 ./start.sh ./given-raw
scene late env OMP_PROC_BIND=true LATE=libgomp.so.1 ./start.sh ./given-late
scene late-node env OMP_PROC_BIND=true LATE=libgomp.so.1 taskset -c 2-3 ./start.sh ./given-late
if [[ -e given-libomp ]]; then
    for bind in true spread; do
        scene libomp-$bind env OMP_PROC_BIND=$bind ./start.sh ./given-libomp
    done
    scene libomp-affinity env KMP_AFFINITY=granularity=fine,compact ./start.sh ./given-libomp
    scene libomp-node env OMP_PROC_BIND=true taskset -c 4-5 ./start.sh ./given-libomp
fi
if type -P mpirun >/dev/null; then
    for to in core numa none; do
        scene mpi-$to mpi --bind-to $to ./start.sh ./given
        scene mpi-$to-bind mpi --bind-to $to -x OMP_PROC_BIND=true ./start.sh ./given
    done
    scene mpi-job env LD_PRELOAD=$PRELOAD NUMAMMA_POLICY=$POLICY OMP_PROC_BIND=true \
        mpirun --allow-run-as-root --mca plm isolated --map-by numa -n 2 --bind-to numa ./start.sh ./given
fi

# numamma verify: its status and what it says.
export BRIEF=1
check() {
    echo "+++ $1"
    shift
    "$@" numamma verify -q -o verify.json -p given.toml -- ./given 2>&1
    echo "status $?"
    cat verify.json
}
check all env OMP_PROC_BIND=true
check node taskset -c 2-3
check memory ./under bind 6
