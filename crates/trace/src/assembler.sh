#!/bin/sh
# as ARGUMENTS: gcc runs it as the assembler, by -B, under that name. Where what gcc has written calls hooks and has no
# macro `call` of its own, lets keep.awk change it, and the real one read inline.s before it.
own=${0%/*}
# In that variable gcc tells its helpers what -B has named.
real=$(unset COMPILER_PATH; "${COLLECT_GCC:-gcc}" -print-prog-name=as)
[ "${real%/*}" = "$own" ] || [ -z "$real" ] && real=as
before='' last=''
for word; do before=$last last=$word; done
if [ "$before" = -o ]; then
    # Without a file behind the output file (gcc -pipe), or with `-`, it reads what it is sent.
    last=-
    set -- "$@" /dev/stdin
elif [ -f "$last" ]; then # others can be read once
    if ! grep -qs __tsan_ "$last" || grep -qis '\.macro[[:space:]][[:space:]]*call\([[:space:],]\|$\)' "$last"; then
        exec "$real" "$@"
    fi
fi
command -v awk >/dev/null || exec "$real" "$own/inline.s" "$@"
# Without the last one.
left=$#
for word; do
    shift
    left=$((left - 1))
    [ "$left" -eq 0 ] || set -- "$@" "$word"
done
[ "$last" = - ] || exec <"$last" || exit
LC_ALL=C awk -f "$own/keep.awk" | exec "$real" "$own/inline.s" "$@" /dev/stdin "$own/end.s"
