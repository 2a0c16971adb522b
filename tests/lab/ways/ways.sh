#!/usr/bin/env bash
# In the guest: ways.sh "WAY..." COMMAND...: runs COMMAND in each way of bindings.sh. Before what it prints is a line
#   === way NAME NODES
# with the nodes of the CPUs that the kernel gives a process which is started in this way; COMMAND finds them in $NODES.
# Reports of the way before are removed: *.json.
set -u
. ./bindings.sh
ways=$1
shift
for way in $ways; do
    rm -f ./*.json
    bound "$way" ./given.sh "$way" "$@" || echo "exit status $?"
done
