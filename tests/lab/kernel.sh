# shellcheck shell=bash
# The guest's kernel: Debian's package, unpacked in the user's cache, never installed on this machine.
#
# A kernel directory holds vmlinuz, the modules the lab needs, and `version`. The first run fetches the
# package with apt (no root: lists and downloads are kept in a directory of our own when the system's
# sources do not offer that kernel).

LAB_CACHE=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/numamma-lab

# What carries the output out of the guest, in loading order (built in on some kernels).
LAB_MODULES=(virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_console)

# lab_kernel 6.1|6.12: prints the kernel's directory, fetching it first if it is not in the cache.
lab_kernel() {
    local series=$1 dir=$LAB_CACHE/linux-$1
    if [[ ! -e $dir/version ]]; then
        mkdir -p "$LAB_CACHE" || die "cannot write $LAB_CACHE; set XDG_CACHE_HOME to a directory you own"
        # One fetch at a time; a lab that waited finds the kernel there.
        (
            flock 9
            [[ -e $dir/version ]] || lab_fetch_kernel "$series" "$dir"
        ) 9>"$LAB_CACHE/linux-$series.lock" || return "$EXIT_LAB"
    fi
    printf '%s\n' "$dir"
}

lab_fetch_kernel() {
    local series=$1 dir=$2 tmp tool
    for tool in apt-get apt-cache dpkg-deb flock; do
        type -P "$tool" >/dev/null ||
            die "the kernel is a Debian package and $tool is missing here; copy $dir from a machine that has run the lab"
    done
    tmp=$(mktemp -d "$LAB_CACHE/fetch.XXXXXX") || return 1
    say "fetching Debian's Linux $series (once; kept in $dir)"
    if lab_download "$series" "$tmp" && lab_unpack "$tmp" && rm -rf -- "$dir" && mv -- "$tmp/kernel" "$dir"; then
        rm -rf -- "$tmp"
        return 0
    fi
    say "no Linux $series package could be fetched:"
    sed 's/^/lab:   /' "$tmp/log" >&2 2>/dev/null
    say "is the Debian mirror reachable? NUMAMMA_LAB_MIRROR=http://... names another one"
    rm -rf -- "$tmp"
    return 1
}

# lab_download SERIES TMP: the package as TMP/*.deb, from the system's own sources when they have it.
lab_download() {
    local series=$1 tmp=$2
    lab_apt=()
    lab_download_from "$series" "$tmp" && return
    lab_private_apt "$tmp" && lab_download_from "$series" "$tmp"
}

# The meta package says which versioned package is the current one.
lab_download_from() {
    local series=$1 tmp=$2 package
    package=$(apt-cache ${lab_apt[@]+"${lab_apt[@]}"} show linux-image-cloud-amd64 2>>"$tmp/log" |
        sed -n "s/^Depends: \(linux-image-$series\.[^ ,]*-cloud-amd64\).*/\1/p" | head -n 1)
    [[ -n $package ]] || { echo "no linux-image-cloud-amd64 $series in these sources" >>"$tmp/log" && return 1; }
    (cd "$tmp" && apt-get ${lab_apt[@]+"${lab_apt[@]}"} -q download "$package") >>"$tmp/log" 2>&1 ||
        { rm -f "$tmp"/*.deb && return 1; }
}

# Sources of our own, so that the system's stay as they are.
lab_private_apt() {
    local tmp=$1 mirror=${NUMAMMA_LAB_MIRROR:-} keyring=/usr/share/keyrings/debian-archive-keyring.gpg suite
    # The system's mirror if it is Debian's: it may be the only one reachable from here.
    [[ -n $mirror ]] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 2>/dev/null |
        grep -v security | head -n 1)
    mirror=${mirror:-http://deb.debian.org/debian}
    [[ -e $keyring ]] || { echo "$keyring is missing: apt-get install debian-archive-keyring" >>"$tmp/log" && return 1; }
    mkdir -p "$tmp/lists/partial" "$tmp/archives/partial"
    for suite in bookworm bookworm-backports; do
        printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "${mirror%/}" "$suite"
    done >"$tmp/sources.list"
    lab_apt=(-o "Dir::Etc::sourcelist=$tmp/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::Lists=$tmp/lists" -o "Dir::Cache=$tmp" -o APT::Architectures=amd64)
    apt-get "${lab_apt[@]}" -q update >>"$tmp/log" 2>&1
}

# lab_unpack TMP: TMP/kernel from TMP/*.deb.
lab_unpack() {
    local tmp=$1 vmlinuz version module file
    dpkg-deb -x "$tmp"/*.deb "$tmp/x" >>"$tmp/log" 2>&1 && mkdir "$tmp/kernel" || return 1
    vmlinuz=$(compgen -G "$tmp/x/boot/vmlinuz-*") || return 1
    version=${vmlinuz##*/vmlinuz-}
    cp -- "$vmlinuz" "$tmp/kernel/vmlinuz"
    for module in "${LAB_MODULES[@]}"; do
        file=$(find "$tmp/x/" -name "$module.ko" -o -name "$module.ko.xz")
        case $file in
        *.xz) xz -dc -- "$file" >"$tmp/kernel/$module.ko" || return 1 ;;
        *.ko) cp -- "$file" "$tmp/kernel/" ;;
        esac
    done
    # Last: a directory with this file is complete.
    printf '%s\n' "$version" >"$tmp/kernel/version"
}
