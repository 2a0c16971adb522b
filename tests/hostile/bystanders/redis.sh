# A Redis of our own, which is linked to jemalloc: fills it, forks for a snapshot, shuts it down.
d=$(mktemp -d)
redis-server --port 0 --unixsocket "$d/socket" --dir "$d" --save '' --logfile "$d/log" &
pid=$!
redis() { redis-cli -s "$d/socket" "$@"; }
until redis ping 2>/dev/null | grep -q PONG; do kill -0 $pid || exit 1; sleep 0.02; done
redis eval "for i = 1, 20000 do redis.call('set', 'k' .. i, string.rep('x', i % 500)) end return redis.call('dbsize')" 0
redis bgsave
until redis info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.02; done
redis info persistence | grep rdb_last_bgsave_status
redis shutdown nosave
wait $pid
echo "ended with $?"
rm -r "$d"
