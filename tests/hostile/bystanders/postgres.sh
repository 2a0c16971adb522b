# A PostgreSQL of our own, not as root, which it refuses: start, a query with parallel workers, stop.
# Its cluster is made once, by whoever calls this first without us.
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin | tr " " :)
as=
[ "$(id -u)" = 0 ] && as="setpriv --reuid 65534 --regid 65534 --clear-groups"
d=$D/postgres
$as test -r "$D/endings.c" || { echo "only root can read $D"; exit; }
if [ ! -d "$d" ]; then
    mkdir "$d" && chmod 700 "$d"
    [ -z "$as" ] || chown 65534:65534 "$d"
    $as initdb -D "$d" -A trust -U me --no-sync >/dev/null || exit 1
fi
cd /
$as pg_ctl -D "$d" -l "$d/log" -w -o "-k '$d' -h '' -c fsync=off" start >/dev/null
echo "started with $?"
$as psql -h "$d" -U me -At postgres <<EOF
set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;
create temporary table t as select i, i % 100 as k, repeat('x', i % 300) as text from generate_series(1, 50000) i;
create table u as select * from t;
select k, count(*), sum(length(text)) from u group by k order by k limit 3;
drop table u;
EOF
$as pg_ctl -D "$d" -m fast -w stop >/dev/null
echo "stopped with $?"
