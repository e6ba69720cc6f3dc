# Runs a PostgreSQL server for as long as its own input is open, and leaves nothing behind.
#
# Arguments: directory of PostgreSQL's programs, port on the loopback interface. Its input is a pipe that only the test process
# has: however that process ends, the pipe closes, and the server goes. As root, this is run as the user `postgres`, because
# PostgreSQL refuses to be run by root.
set -eu
programs=$1
port=$2
directory=$(mktemp -d "${TMPDIR:-/tmp}/orrery-postgres.XXXXXX")
# A person's Ctrl-C reaches this too; the end of the input is what counts.
trap '' INT TERM HUP
cd "$directory"

initialize() {
    "$programs/initdb" -D "$directory/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync "$@" >"$directory/log" 2>&1
}
# With the order of a language where possible: whoever forgets to ask for the order of bytes finds out.
initialize --locale-provider=icu --icu-locale=en || { rm -rf "$directory/data"; initialize; } || {
    cat "$directory/log" >&2
    rm -rf "$directory"
    exit 1
}
"$programs/postgres" -D "$directory/data" -p "$port" -c listen_addresses=127.0.0.1 -c "unix_socket_directories=$directory" \
    -c max_connections=200 -c "logging_collector=off" >"$directory/log" 2>&1 </dev/null &
server=$!
echo "$directory"

while read -r _; do :; done
kill -QUIT "$server" 2>/dev/null || true
wait "$server" 2>/dev/null || true
rm -rf "$directory"
