# An nginx of our own with two workers: reloads, answers, stops.
d=$(mktemp -d)
chmod 755 "$d"
head -c 300000 /dev/zero >"$d/file"
cat >"$d/conf" <<EOF
$([ "$(id -u)" = 0 ] && echo 'user root;')
daemon off; worker_processes 2; pid $d/pid; error_log $d/error;
events { }
http {
    access_log off; client_body_temp_path $d; proxy_temp_path $d; fastcgi_temp_path $d; uwsgi_temp_path $d; scgi_temp_path $d;
    gzip on; gzip_types *; gzip_proxied any;
    server { listen unix:$d/socket; root $d; }
}
EOF
nginx -e "$d/error" -c "$d/conf" &
pid=$!
get() { curl -s --compressed --unix-socket "$d/socket" http://local/file | cksum; }
until [ -S "$d/socket" ]; do kill -0 $pid || exit 1; sleep 0.02; done
get
nginx -e "$d/error" -c "$d/conf" -s reload
get
nginx -e "$d/error" -c "$d/conf" -s quit
wait $pid
echo "ended with $?"
grep -E 'alert|emerg|signal 1?1 ' "$d/error"
rm -r "$d"
