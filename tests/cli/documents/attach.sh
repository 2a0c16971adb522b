# attach.sh COMMAND: runs a command in which $FIRST and $SECOND are processes. Some commands wait for the end of these,
# so they end a while after a profile is begun, which is when all their threads are recorded.
set -euo pipefail
touch started
./app 1000000 >app.out & FIRST=$!
./app 1000000 >app.out & SECOND=$!
trap 'kill $FIRST $SECOND 2>kill.err || true' EXIT
while kill -0 $FIRST 2>kill.err; do
    if [ -n "$(find . -name '*.prof' -newer started)" ]; then
        sleep 0.5
        kill $FIRST $SECOND
    fi
    sleep 0.05
done &
eval "$1"
