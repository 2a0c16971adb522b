# shellcheck shell=bash
# qemu: the machine, the boot, and the way back of stdout, stderr and the exit status.
#
# Three virtio-serial ports write to three files of the run's directory. `tail` relays the first two as
# they grow. The guest reports how many bytes it sent; the machine is stopped only when all have arrived.

# A boot that is not ready by then hangs, and is tried again. It takes 4 s on a free machine and was seen to
# take 35 on a crowded one; a kernel that panics ends at once and does not wait for this.
LAB_BOOT_SECONDS=120
LAB_BOOT_TRIES=3
# As a shell reports a program that wrote to a pipe nobody reads: 128 + SIGPIPE.
EXIT_PIPE=141

# lab_distances: -numa dist arguments for every pair, into distance_args. 10 is a node's distance to itself.
lab_distances() {
    local -a rows cells
    local i j
    if [[ $distances =~ ^[0-9]+$ ]]; then
        number --distances "$distances" 11 254
        for ((i = 0; i < nodes; i++)); do
            for ((j = 0; j < nodes; j++)); do lab_distance "$i" "$j" $((i == j ? 10 : 10#$distances)); done
        done
        return
    fi
    IFS=';' read -r -a rows <<<"$distances"
    ((${#rows[@]} == nodes)) || die "--distances has ${#rows[@]} rows for $nodes nodes"
    for ((i = 0; i < nodes; i++)); do
        read -r -a cells <<<"${rows[i]//,/ }"
        ((${#cells[@]} == nodes)) || die "--distances: row $i has ${#cells[@]} numbers for $nodes nodes"
        for ((j = 0; j < nodes; j++)); do
            if ((i == j)); then
                [[ ${cells[j]} == 10 ]] || die "--distances: node $i is at 10 from itself, not '${cells[j]}'"
            else
                number "--distances (row $i)" "${cells[j]}" 11 254
            fi
            lab_distance "$i" "$j" "${cells[j]}"
        done
    done
}

lab_distance() {
    distance_args+=(-numa "dist,src=$1,dst=$2,val=$3")
}

lab_start_qemu() {
    local accel cpu=max i first
    local -a args
    case $kernel in
    # Measured: 6.12 with cmpxchg16b and one thread per emulated CPU dies in about a third of the boots.
    6.12) accel=tcg,thread=single cpu=max,-cx16 ;;
    # One thread does as much as two that wait for each other's locks; more CPUs than that are a gain.
    *) if (($(nproc) < 4)); then accel=tcg,thread=single; else accel=tcg,thread=multi; fi ;;
    esac
    accel=${NUMAMMA_LAB_ACCEL:-$accel}
    # The meter knows one thread only.
    [[ -z $meter_plugin ]] || accel=tcg,thread=single
    args=(-nodefaults -no-user-config -no-reboot -display none -accel "$accel" -cpu "$cpu"
        -smp "$((nodes * cpus_per_node)),sockets=$nodes,cores=$cpus_per_node,threads=1"
        -m "$((nodes * memory_per_node))M")
    for ((i = 0; i < nodes; i++)); do
        first=$((i * cpus_per_node))
        args+=(-object "memory-backend-ram,id=m$i,size=${memory_per_node}M"
            -numa "node,nodeid=$i,cpus=$first-$((first + cpus_per_node - 1)),memdev=m$i")
    done
    args+=("${distance_args[@]}"
        -drive "file=$work/disk,if=none,id=disk,format=raw,cache=unsafe" -device nvme,drive=disk,serial=lab
        -serial "file:$work/console" -device virtio-serial-pci)
    [[ -z $meter_plugin ]] || args+=(-plugin "$meter_plugin")
    local port=0 name
    for name in out err status; do
        port=$((port + 1))
        args+=(-chardev "file,id=$name,path=$work/$name,append=on"
            -device "virtserialport,chardev=$name,nr=$port,name=lab.$name")
    done
    # mitigations=off: they protect nothing here and cost emulated time.
    args+=(-kernel "$kernel_dir/vmlinuz" -append "console=ttyS0 loglevel=4 panic=-1 root=/dev/nvme0n1 rw \
init=/lab/init mitigations=off random.trust_cpu=on transparent_hugepage=$thp")
    # Should this script be killed outright, the machine goes with it.
    setpriv --pdeathsig KILL qemu-system-x86_64 "${args[@]}" </dev/null >"$work/qemu.log" 2>&1 &
    qemu=$!
}

lab_stop_qemu() {
    local pid
    for pid in ${qemu:-} ${relay_watch:-} ${relays[@]+"${relays[@]}"}; do
        kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    done
    qemu='' relay_watch='' relays=()
}

# lab_line WORD: the line of the status port that starts with WORD, once it is complete.
lab_line() {
    local line
    while IFS= read -r line; do
        [[ $line == "$1"* ]] && printf '%s\n' "$line" && return
    done <"$work/status"
    return 1
}

# lab_wait WORD SECONDS: 0 when the line is there (in `reply`), 1 when qemu has ended, 2 after SECONDS, 3 when
# nobody reads stdout any more.
lab_wait() {
    local until=$((SECONDS + $2))
    while :; do
        reply=$(lab_line "$1") && return 0
        if ! kill -0 "$qemu" 2>/dev/null; then
            reply=$(lab_line "$1") && return 0
            return 1
        fi
        ((SECONDS < until)) || return 2
        # A reader that went away (head): the command is not let run on for nobody.
        [[ -z ${relays[0]:-} ]] || kill -0 "${relays[0]}" 2>/dev/null || return 3
        sleep 0.05
    done
}

# Sets `status`, or ends with EXIT_LAB or EXIT_TIMEOUT.
lab_run() {
    local try outcome
    relays=()
    for ((try = 1; ; try++)); do
        : >"$work/out" >"$work/err" >"$work/status" >"$work/console"
        lab_start_qemu
        lab_wait ready "$LAB_BOOT_SECONDS"
        outcome=$?
        ((outcome == 0)) && break
        lab_stop_qemu
        if ((try == LAB_BOOT_TRIES)); then
            lab_show_logs
            ((outcome != 2)) || say "nothing was heard from it within $LAB_BOOT_SECONDS s"
            die "the guest did not get ready in $LAB_BOOT_TRIES tries (above: the last one's console)"
        fi
    done
    lab_relay
    lab_wait exit "$timeout"
    case $? in
    0) lab_drain ;;
    1)
        lab_drain
        lab_show_logs
        die "the guest died while the command ran (above: its console)"
        ;;
    3) exit "$EXIT_PIPE" ;;
    *)
        lab_drain
        say "timeout: the command ran for $timeout s; the guest was stopped (--timeout gives more)"
        exit "$EXIT_TIMEOUT"
        ;;
    esac
    lab_stop_qemu
}

# tail ends when the process it watches does, after one last look at its file.
lab_relay() {
    setpriv --pdeathsig KILL sleep 86400 >/dev/null 2>&1 &
    relay_watch=$!
    tail -q -c +1 -f -s 0.05 --pid="$relay_watch" "$work/out" &
    relays=("$!")
    tail -q -c +1 -f -s 0.05 --pid="$relay_watch" "$work/err" >&2 &
    relays+=("$!")
}

# Waits until everything the guest sent has arrived and has been passed on.
lab_drain() {
    local word out_bytes=0 err_bytes=0 tries=0
    if [[ $reply == exit* ]]; then
        read -r word status out_bytes err_bytes <<<"$reply"
        while (($(stat -c %s "$work/out") < out_bytes || $(stat -c %s "$work/err") < err_bytes)); do
            # They are in qemu's hands already: ten seconds is far beyond what it needs.
            ((tries++ < 200)) || die "output of the guest was lost: $out_bytes and $err_bytes bytes were sent"
            sleep 0.05
        done
    fi
    kill "$relay_watch" 2>/dev/null
    wait "$relay_watch" "${relays[@]}" 2>/dev/null
    relay_watch='' relays=()
}

lab_show_logs() {
    local log
    for log in qemu.log console; do
        [[ ! -s $work/$log ]] || tail -n 60 "$work/$log" | tr -d '\r' | sed "s/^/lab: $log: /" >&2
    done
}
