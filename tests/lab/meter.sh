# shellcheck shell=bash
# The meter: a plugin for qemu and a program for the guest, compiled for each run, and what they counted.

meter_plugin=''

# Whether qemu takes plugins.
lab_meter_possible() {
    [[ $(qemu-system-x86_64 -help 2>/dev/null) == *$'\n-plugin '* ]]
}

# Sets meter_plugin to qemu's argument if this run is metered, and wraps the command if --meter was given.
lab_meter_make() {
    [[ $meter == yes || -n $meter_out ]] || return 0
    type -P cc >/dev/null || die "the meter is compiled here and cc is missing: apt-get install gcc"
    lab_meter_possible || die "this qemu was built without plugins (Debian's has them): nothing can be metered"
    meter_json=$work/meter.json
    : >"$meter_json"
    # Hidden, because qemu has functions of the same names.
    cc -O2 -shared -fPIC -fvisibility=hidden -I "$LAB_DIR/meter" -o "$work/meter.so" "$LAB_DIR"/meter/plugin/*.c &&
        cc -O2 -static -o "$work/meter-mark" "$LAB_DIR/meter/mark.c" || die "the meter could not be compiled"
    # Only distance_args knows the matrix in full, row by row.
    local distance list=''
    for distance in "${distance_args[@]}"; do
        [[ $distance != *,val=* ]] || list+=${list:+:}${distance##*,val=}
    done
    meter_plugin=$work/meter.so,out=$meter_json,nodes=$nodes,cpus=$cpus_per_node,mb=$memory_per_node,distances=$list
    [[ -z $meter_options ]] || meter_plugin+=,$meter_options
    [[ $meter == yes ]] || return 0
    if [[ -n $meter_policy ]]; then
        # shellcheck disable=SC2016  # for the guest's shell
        command=(bash -c 'policy=$1; shift
meter-mark --name "first touch" -- "$@" || exit
LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=$policy meter-mark --name "placed" -- "$@"' \
            -- "${meter_policy##*/}" "${command[@]}")
    else
        command=(meter-mark -- "${command[@]}")
    fi
}

lab_meter_install() {
    [[ -z $meter_plugin ]] || lab_copy_as "$1" "$work/meter-mark" /usr/bin/meter-mark
}

# After the run: the table for people, the counts for programs.
lab_meter_show() {
    [[ -n $meter_plugin ]] || return 0
    [[ $meter != yes ]] || cat "$meter_json.txt" >&2
    [[ -z $meter_out ]] || cp -- "$meter_json" "$meter_out" || die "cannot write $meter_out"
    ! grep -q '^{"error"' "$meter_json" || die "the meter failed: $(sed -n 's/^{"error":"\(.*\)"}$/\1/p' "$meter_json")"
}
