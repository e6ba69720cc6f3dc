#!/bin/sh
# PostgreSQL of the node: one database `app`, for the addresses of the cluster.
set -eu
# PostgreSQL refuses to run as root, and its own account may not see the directory of the node.
if [ "$(id -u)" -ne 0 ]; then
    directory=$ORRERY_NODE_DIR/postgresql
else
    directory=/var/tmp/orrery-postgresql-$ORRERY_CLUSTER-$ORRERY_NODE_NUMBER-$ORRERY_INCARNATION
fi
data=$directory/data

# Programs of the newest installed version.
programs() {
    for candidate in /usr/lib/postgresql/*/bin; do [ -x "$candidate/postgres" ] && found=$candidate; done
    [ -n "${found:-}" ] || found=$(dirname "$(command -v postgres 2>/dev/null)") 2>/dev/null || true
    [ -x "${found:-}/postgres" ] || { echo "PostgreSQL is missing: apt-get install postgresql" >&2; exit 1; }
    echo "$found"
}

as_owner() {
    if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

bin=$(programs)
case $1 in
install)
    mkdir -p "$directory"
    if [ "$(id -u)" -eq 0 ]; then chown postgres "$directory"; fi
    ;;
configure)
    cat >"$directory/postgresql.conf" <<CONF
data_directory = '$data'
hba_file = '$directory/pg_hba.conf'
ident_file = '$data/pg_ident.conf'
listen_addresses = '$ORRERY_BIND_IP'
port = 5432
unix_socket_directories = ''
max_connections = ${ORRERY_CONFIG_MAX_CONNECTIONS:-100}
shared_buffers = 16MB
CONF
    # A demonstration: the network of the cluster is trusted.
    echo 'host app app samenet trust' >"$directory/pg_hba.conf"
    echo 'host app app 127.0.0.0/8 trust' >>"$directory/pg_hba.conf"
    ;;
initialize)
    cd "$directory"
    # Left by an attempt that ended halfway.
    rm -rf "$data"
    as_owner "$bin/initdb" --pgdata "$data" --username postgres --auth trust --encoding UTF8 --locale C >/dev/null
    as_owner "$bin/postgres" --single -D "$data" postgres >/dev/null <<SQL
CREATE ROLE app LOGIN;
CREATE DATABASE app OWNER app;
SQL
    ;;
start)
    cd "$directory"
    if [ "$(id -u)" -eq 0 ]; then
        orrery-daemon start postgresql runuser -u postgres -- "$bin/postgres" -c "config_file=$directory/postgresql.conf"
    else
        orrery-daemon start postgresql "$bin/postgres" -c "config_file=$directory/postgresql.conf"
    fi
    tries=0
    until "$bin/pg_isready" --quiet --host "$ORRERY_BIND_IP" --port 5432; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || { echo "PostgreSQL does not answer" >&2; tail -n 5 "$ORRERY_NODE_DIR/log/postgresql.log" >&2; exit 1; }
        orrery-daemon status postgresql || { tail -n 5 "$ORRERY_NODE_DIR/log/postgresql.log" >&2; exit 1; }
        sleep 0.1
    done
    ;;
stop) orrery-daemon stop postgresql ;;
probe) "$bin/pg_isready" --host "$ORRERY_BIND_IP" --port 5432 ;;
remove) rm -rf "$directory" ;;
*) echo "postgresql.sh: unknown action $1" >&2; exit 64 ;;
esac
