# shellcheck shell=bash
# Ways to bind a program that leave it all nodes of the machine. The programs of the tests are linked with GNU's OpenMP
# runtime, whose constructor binds the main thread by these variables.
last_cpu=$(($(nproc) - 1))
bindings=(unbound OMP_PROC_BIND=true OMP_PROC_BIND=close OMP_PROC_BIND=spread OMP_PLACES=cores OMP_PLACES=sockets
    GOMP_CPU_AFFINITY=0-$last_cpu taskset)

# bound NUMBER COMMAND...: runs COMMAND in way NUMBER, counted on from the first after the last; 0 is unbound.
bound() {
    local way=${bindings[$1 % ${#bindings[@]}]}
    shift
    case $way in
    unbound) "$@" ;;
    taskset) taskset -c "0-$last_cpu" "$@" ;;
    *) env "$way" "$@" ;;
    esac
}
