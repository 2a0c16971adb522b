# shellcheck shell=bash
# Ways to bind a program. The programs of the tests are linked with GNU's OpenMP runtime, whose constructor binds the
# main thread by these variables.
last_cpu=$(($(nproc) - 1))
# These leave it all nodes of the machine, as `mpirun --bind-to none` does.
bindings=(unbound OMP_PROC_BIND=true OMP_PROC_BIND=close OMP_PROC_BIND=spread OMP_PLACES=cores OMP_PLACES=sockets
    GOMP_CPU_AFFINITY=0-$last_cpu taskset)

# bound WAY COMMAND...: runs COMMAND in a way, which is its number, counted on from the first after the last (0 is
# unbound), or its name. The names of ways that leave it one node: node (taskset), mpirun-core, mpirun-numa.
bound() {
    local way=$1
    [[ ! $way =~ ^[0-9]+$ ]] || way=${bindings[way % ${#bindings[@]}]}
    shift
    case $way in
    unbound) "$@" ;;
    taskset) taskset -c "0-$last_cpu" "$@" ;;
    node) taskset -c "$(</sys/devices/system/node/node1/cpulist)" "$@" ;;
    mpirun-*) second_rank "${way#mpirun-}" "$@" ;;
    GOMP_CPU_AFFINITY) env "$way=0-$last_cpu" "$@" ;;
    *) env "$way" "$@" ;;
    esac
}

# The second of two ranks is the program: its node is not the first. What it writes is shown when it has ended, because
# mpirun shows lines. It does not know its rank, which would become a part of the names of its files.
second_rank() {
    local to=$1 status=0
    shift
    # shellcheck disable=SC2016 # for the shell of each rank
    mpirun --allow-run-as-root --mca plm isolated --map-by numa --bind-to "$to" -n 2 /bin/busybox sh -c \
        '[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exit 0
        unset OMPI_COMM_WORLD_RANK PMIX_RANK
        exec "$@" >rank.out 2>rank.err' sh "$@" >&2 || status=$?
    cat rank.out
    cat rank.err >&2
    return $status
}
