# shellcheck shell=bash
# The guest's files: a tree gathered from this machine, turned into an ext4 image by `mke2fs -d`.
#
# Files keep their absolute paths, so that RPATH, RUNPATH and compiled-in paths hold. The image is the
# root file system (NVMe and ext4 are built into the kernel): no initramfs to unpack.

# Where the command runs; also first on its PATH.
LAB_CWD=/work
# Free space of the guest's disk, MiB. The image file is sparse: only what is written costs.
LAB_FREE_MIB=1024

# lab_image ROOT DISK: gathers everything under ROOT and makes the image DISK.
lab_image() {
    local root=$1 disk=$2 item mib
    declare -gA lab_seen=()
    lab_elf=()
    lab_base "$root" && lab_install "$root" && lab_meter_install "$root" && lab_init_files "$root" || return 1
    for item in ${adds[@]+"${adds[@]}"}; do
        lab_add "$root" "$item" || { say "--add $item: could not be copied" && return 1; }
    done
    for item in ${roots[@]+"${roots[@]}"}; do
        lab_copy_path "$root" "$item" || { say "--with-root $item: could not be copied" && return 1; }
    done
    lab_libraries "$root" || return 1
    # Finds LD_PRELOAD=libnumamma-apply.so by name, as on a machine where it is installed.
    "$(lab_tool ldconfig)" -r "$root" 2>"$work/ldconfig.log" || say "ldconfig failed: $(head -n 1 "$work/ldconfig.log")"
    mib=$(($(du -sm --apparent-size -- "$root" | cut -f 1) * 11 / 10 + LAB_FREE_MIB))
    # root_owner: the tree is ours here, root's there. No journal: the disk lives for one run.
    "$(lab_tool mke2fs)" -q -F -t ext4 -O ^has_journal -E root_owner=0:0,lazy_itable_init=1 -m 0 -d "$root" \
        "$disk" "${mib}M" >"$work/mke2fs.log" 2>&1 && return
    say "mke2fs: $(tail -n 1 "$work/mke2fs.log")"
    return 1
}

# Directories, busybox, bash, name files.
lab_base() {
    local root=$1 dir applet busybox
    mkdir -p "$root"/{usr/{bin,sbin,lib,lib64,local/bin,local/lib},etc,proc,sys,dev,tmp,run,root,home/user,var/tmp} \
        "$root$LAB_CWD" "$root/lab" || return 1
    # /lib and friends are links into /usr where they are so here, real directories elsewhere.
    for dir in bin sbin lib lib64; do
        if [[ -L /$dir ]]; then ln -s "usr/$dir" "$root/$dir"; else mkdir -p "$root/$dir"; fi
    done
    busybox=$(lab_tool busybox)
    lab_copy_as "$root" "$busybox" /bin/busybox
    for applet in $(busybox --list); do
        [[ -e $root/bin/$applet ]] || ln -s busybox "$root/bin/$applet"
    done
    # The real ones where scripts depend on them.
    for applet in bash setpriv; do
        rm -f -- "$root/bin/$applet"
        lab_copy_as "$root" "$(lab_tool "$applet")" "/bin/$applet"
    done
    printf 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\nuser:x:1000:\n' >"$root/etc/group"
    printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
    printf 'lab\n' >"$root/etc/hostname"
    printf '127.0.0.1 localhost lab\n' >"$root/etc/hosts"
    cp -rL /etc/ld.so.conf /etc/ld.so.conf.d "$root/etc/" 2>/dev/null
    printf '/usr/local/lib\n' >>"$root/etc/ld.so.conf"
}

# NumaMMA as `make install` leaves it.
lab_install() {
    local root=$1 prefix=${NUMAMMA_LAB_PREFIX:-${CARGO_TARGET_DIR:-$REPO_DIR/target}/release} name library
    if [[ -n ${NUMAMMA_LAB_PREFIX:-} && ! -d $prefix ]]; then
        say "NUMAMMA_LAB_PREFIX=$prefix: no such directory" && return 1
    fi
    if [[ -e $prefix/bin/numamma ]]; then
        lab_copy_as "$root" "$prefix/bin/numamma" /usr/local/bin/numamma
        for name in apply profile; do
            lab_copy_as "$root" "$prefix/lib/libnumamma-$name.so" "/usr/local/lib/libnumamma-$name.so" || return 1
        done
    elif [[ -e $prefix/numamma ]]; then
        lab_copy_as "$root" "$prefix/numamma" /usr/local/bin/numamma
        for name in apply profile; do
            # Cargo's names: a crate's name cannot hold a hyphen. `cargo test` makes libraries in deps/ only.
            library=deps/libnumamma_preload_$name.so
            lab_copy_as "$root" "$prefix/$library" "/usr/local/lib/libnumamma-$name.so" && continue
            say "$prefix has numamma and no $library: build the whole workspace (make build)"
            return 1
        done
    elif [[ ${command[0]##*/} == numamma || ${command[*]} == *libnumamma-* ]]; then
        say "the command names numamma, and there is no build in $prefix: run make build, or set NUMAMMA_LAB_PREFIX"
        return 1
    fi
}

# What init reads: the modules and the command, quoted for sh.
lab_init_files() {
    local root=$1 word module
    cp -- "$LAB_DIR/init" "$root/lab/init" && chmod 755 "$root/lab/init" || return 1
    for module in "${LAB_MODULES[@]}"; do
        [[ ! -e $kernel_dir/$module.ko ]] || cp -- "$kernel_dir/$module.ko" "$root/lab/" || return 1
    done
    printf '%s\n' "${LAB_MODULES[@]}" >"$root/lab/modules"
    {
        printf 'exec'
        for word in "${command[@]}"; do printf " '%s'" "${word//\'/\'\\\'\'}"; done
        printf '\n'
    } >"$root/lab/command"
    printf '%s' "${sysctls[@]+${sysctls[@]/%/$'\n'}}" >"$root/lab/sysctls"
    printf '%s\n' "$unprivileged" >"$root/lab/unprivileged"
}

# lab_add ROOT FILE: into the working directory, under its own name.
lab_add() {
    local root=$1 file=$2 name
    name=$(basename -- "$(realpath -s -- "$file")")
    if [[ -d $file ]]; then
        cp -a -- "$(realpath -- "$file")" "$root$LAB_CWD/$name" && lab_note_tree "$file"
        return
    fi
    lab_copy_as "$root" "$file" "$LAB_CWD/$name" && lab_interpreter "$root" "$file"
}

# lab_copy_as ROOT FILE GUESTPATH: one file, links followed; its libraries come with lab_libraries.
lab_copy_as() {
    local root=$1 file=$2 to=$3
    mkdir -p -- "$root${to%/*}" && cp -L --preserve=mode,timestamps -- "$file" "$root$to" || return 1
    if lab_is_elf "$file"; then lab_elf+=("$(realpath -- "$file")"); fi
}

# lab_copy_path ROOT PATH: a file or a tree to the same absolute path.
lab_copy_path() {
    local root=$1 path=$2 link target
    [[ -z ${lab_seen[$path]:-} ]] || return 0
    lab_seen[$path]=1
    if [[ ! -d $path ]]; then
        # A name that busybox has too: the real one wins, as a file and not through the link.
        [[ ! -L $root$path ]] || rm -f -- "$root$path"
        lab_copy_as "$root" "$path" "$path" && lab_interpreter "$root" "$path"
        return
    fi
    mkdir -p -- "$root$path" && cp -a -- "$path/." "$root$path/" && lab_note_tree "$path" || return 1
    # Links that lead out of the tree: bring what they mean.
    while IFS= read -r -d '' link; do
        target=$(realpath -q -- "$path/${link#"$root$path"/}") || continue
        [[ $target == "$(realpath -- "$path")"/* || -e $root$target ]] || lab_copy_path "$root" "$target" || return 1
    done < <(find "$root$path" -type l -print0)
}

# lab_note_tree TREE [ORIGIN]: notes the programs and libraries of TREE, by their names in ORIGIN if it is a copy.
lab_note_tree() {
    local file tree origin
    tree=$(realpath -- "$1") origin=$(realpath -- "${2:-$1}")
    while IFS= read -r -d '' file; do
        if lab_is_elf "$file"; then lab_elf+=("$origin${file#"$tree"}"); fi
    done < <(find "$tree" -type f \( -perm -u+x -o -name '*.so' -o -name '*.so.*' \) -print0)
}

lab_is_elf() {
    local magic
    LC_ALL=C IFS= read -r -d '' -N 4 magic <"$1" 2>/dev/null
    [[ $magic == $'\x7fELF' ]]
}

# lab_interpreter ROOT FILE: what a script's first line names, and Python's library for Python.
lab_interpreter() {
    local root=$1 line words interpreter library
    LC_ALL=C IFS= read -r line <"$2" 2>/dev/null || true
    [[ $line == '#!'* ]] || return 0
    read -r -a words <<<"${line#\#!}"
    interpreter=${words[0]:-}
    if [[ $interpreter == */env ]]; then
        interpreter=${words[1]:-}
        [[ $interpreter == -S ]] && interpreter=${words[2]:-}
        interpreter=$(type -P "$interpreter") || { say "$2: its interpreter '${words[*]:1}' is not here" && return 1; }
    fi
    [[ -e $interpreter ]] || { say "$2: its interpreter '$interpreter' is not here" && return 1; }
    case ${interpreter##*/} in
    sh | bash | busybox) return 0 ;;
    python*)
        # A shim or a virtual environment's link: the real program knows where its library is.
        line=$("$interpreter" -I -c 'import sys, sysconfig as s; print(sys.executable); print(s.get_path("stdlib"))') ||
            return 1
        library=${line#*$'\n'}
        lab_copy_as "$root" "${line%%$'\n'*}" "/usr/bin/${interpreter##*/}"
        if [[ $interpreter != /usr/bin/* ]]; then
            lab_copy_as "$root" "${line%%$'\n'*}" "${line%%$'\n'*}"
            [[ -e $root$interpreter ]] || lab_copy_as "$root" "${line%%$'\n'*}" "$interpreter"
        fi
        # The standard library alone: what was installed beside it can be large, and --with-root brings it.
        mkdir -p -- "$root$library" &&
            tar -C "$library" --exclude=./site-packages --exclude=./test --exclude=__pycache__ -cf - . |
            tar -C "$root$library" -xf - && lab_note_tree "$root$library" "$library"
        ;;
    *) lab_copy_path "$root" "$interpreter" ;;
    esac
}

# The shared libraries of everything noted, and the loader, at the paths they have here.
lab_libraries() {
    local root=$1 path
    ((${#lab_elf[@]})) || return 0
    while IFS= read -r path; do
        [[ -e $root$path ]] || lab_copy_library "$root" "$path" || return 1
    done < <(printf '%s\0' "${lab_elf[@]}" | xargs -0 -r ldd 2>/dev/null |
        sed -n -e 's/^.* => \(\/[^ ]*\) (0x.*$/\1/p' -e 's/^[[:space:]]*\(\/[^ ]*\) (0x.*$/\1/p' | sort -u)
    # Loaded at run time and never listed: libgcc_s by pthread_exit and unwinding.
    path=$(ldconfig_path libgcc_s.so.1)
    [[ -z $path || -e $root$path ]] || lab_copy_library "$root" "$path"
}

# lab_copy_library ROOT PATH: a library, with the link that leads to it: profiles name libraries by their files.
lab_copy_library() {
    local root=$1 path=$2 file
    file=$(realpath -- "$path") && file=${path%/*}/${file##*/} && lab_copy_as "$root" "$path" "$file" || return 1
    [[ $file == "$path" ]] || ln -s -- "${file##*/}" "$root$path"
}

ldconfig_path() {
    "$(lab_tool ldconfig)" -p 2>/dev/null | sed -n "s/^[[:space:]]*$1 (libc6,x86-64.*=> //p" | head -n 1
}
