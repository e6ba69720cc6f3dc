#!/bin/sh
# nginx in front of the application. A new configuration is loaded without a restart.
set -eu
directory=$ORRERY_NODE_DIR/nginx
configuration=$directory/nginx.conf
PATH=$PATH:/usr/sbin:/sbin
if [ "$(id -u)" -eq 0 ]; then port=80; user="user nobody $(id -gn nobody);"; else port=8080; user=""; fi

check() { nginx -t -q -p "$directory" -c "$1" 2>"$directory/check.log" || { cat "$directory/check.log" >&2; exit 1; }; }

case $1 in
install)
    command -v nginx >/dev/null || { echo "nginx is missing: apt-get install nginx-light" >&2; exit 1; }
    mkdir -p "$directory/tmp" "$directory/log"
    ;;
configure)
    {
        echo "$user"
        echo "pid $directory/nginx.pid;"
        echo "error_log $directory/log/error.log;"
        echo "worker_processes 1;"
        echo "events { worker_connections 512; }"
        echo "http {"
        echo "  access_log off;"
        for kind in client_body proxy fastcgi uwsgi scgi; do echo "  ${kind}_temp_path $directory/tmp/$kind;"; done
        echo "  upstream app {"
        for server in ${ORRERY_CONFIG_UPSTREAM:?the configuration has no nginx.upstream}; do
            echo "    server $server max_fails=0;"
        done
        echo "  }"
        echo "  server {"
        echo "    listen $ORRERY_BIND_IP:$port;"
        echo "    location / {"
        echo "      proxy_pass http://app;"
        echo "      proxy_connect_timeout 1s;"
        echo "      proxy_next_upstream error timeout http_503;"
        echo "    }"
        echo "  }"
        echo "}"
    } >"$configuration.new"
    check "$configuration.new"
    mv "$configuration.new" "$configuration"
    if orrery-daemon status nginx 2>/dev/null; then nginx -s reload -p "$directory" -c "$configuration"; fi
    ;;
initialize) ;;
start)
    check "$configuration"
    orrery-daemon start nginx nginx -p "$directory" -c "$configuration" -g "daemon off;"
    tries=0
    until "$0" probe >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -ge 100 ] || ! orrery-daemon status nginx; then
            tail -n 5 "$directory/log/error.log" >&2
            exit 1
        fi
        sleep 0.1
    done
    ;;
stop) orrery-daemon stop nginx ;;
probe)
    # That nginx answers: errors of the application are its own.
    python3 - "$ORRERY_BIND_IP" "$port" <<'PYTHON'
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=3)
connection.request("GET", "/")
connection.getresponse()
PYTHON
    ;;
remove) rm -rf "$directory" ;;
*) echo "nginx.sh: unknown action $1" >&2; exit 64 ;;
esac
