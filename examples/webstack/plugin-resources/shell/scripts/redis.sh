#!/bin/sh
# Redis of the node, in memory only.
set -eu
directory=$ORRERY_NODE_DIR/redis

answers() {
    python3 - "$ORRERY_BIND_IP" <<'PYTHON'
import socket, sys
with socket.create_connection((sys.argv[1], 6379), 2) as connection:
    connection.sendall(b"PING\r\n")
    sys.exit(connection.recv(16) != b"+PONG\r\n")
PYTHON
}

case $1 in
install)
    command -v redis-server >/dev/null || { echo "Redis is missing: apt-get install redis-server" >&2; exit 1; }
    mkdir -p "$directory"
    ;;
configure)
    cat >"$directory/redis.conf" <<CONF
bind $ORRERY_BIND_IP
port 6379
protected-mode no
dir $directory
save ""
maxmemory ${ORRERY_CONFIG_MAXMEMORY:-32mb}
maxmemory-policy allkeys-lru
CONF
    ;;
initialize) ;;
start)
    orrery-daemon start redis redis-server "$directory/redis.conf"
    tries=0
    until answers 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { echo "Redis does not answer" >&2; tail -n 5 "$ORRERY_NODE_DIR/log/redis.log" >&2; exit 1; }
        sleep 0.1
    done
    ;;
stop) orrery-daemon stop redis ;;
probe) answers ;;
remove) rm -rf "$directory" ;;
*) echo "redis.sh: unknown action $1" >&2; exit 64 ;;
esac
