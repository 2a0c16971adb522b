#!/bin/sh
# as ARGUMENTS: gcc runs it as the assembler, by -B, under that name. Lets the real one read inline.s before what gcc
# has written, where that calls hooks and has no macro `call` of its own.
own=${0%/*}
# In that variable gcc tells its helpers what -B has named.
real=$(unset COMPILER_PATH; "${COLLECT_GCC:-gcc}" -print-prog-name=as)
[ "${real%/*}" = "$own" ] || [ -z "$real" ] && real=as
before='' last=''
for word; do before=$last last=$word; done
if [ "$before" = -o ]; then
    # Without a file behind the output file (gcc -pipe), or with `-`, it reads what it is sent.
    set -- "$@" /dev/stdin
elif [ "$last" != - ]; then
    if ! grep -qs __tsan_ "$last" || grep -qis '\.macro[[:space:]][[:space:]]*call\([[:space:],]\|$\)' "$last"; then
        exec "$real" "$@"
    fi
fi
exec "$real" "$own/inline.s" "$@"
