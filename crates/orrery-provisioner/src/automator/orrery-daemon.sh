#!/bin/sh
# Starts, stops and checks a program of a service in a session of its own, with a log.
#
# Usage: orrery-daemon start NAME COMMAND...
#        orrery-daemon stop NAME
#        orrery-daemon status NAME
set -eu
directory=${ORRERY_NODE_DIR:?}
if [ $# -lt 2 ]; then
    echo "usage: orrery-daemon start NAME COMMAND... | stop NAME | status NAME" >&2
    exit 64
fi
verb=$1
name=$2
shift 2
record=$directory/run/$name

# Start of a running process in ticks since boot: its number may be reused.
start_time() {
    text=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # shellcheck disable=SC2086
    set -- ${text##*) }
    if [ "$1" = Z ]; then return 1; fi
    echo "${20}"
}

is_running() {
    if [ ! -f "$record" ]; then return 1; fi
    read -r pid started <"$record" || return 1
    now=$(start_time "$pid") || return 1
    [ "$now" = "$started" ]
}

case $verb in
start)
    if is_running; then exit 0; fi
    mkdir -p "$directory/run" "$directory/log"
    setsid "$@" </dev/null >>"$directory/log/$name.log" 2>&1 &
    pid=$!
    started=$(start_time "$pid") || { echo "$name ended at once; see log/$name.log" >&2; exit 1; }
    echo "$pid $started" >"$record.new"
    mv "$record.new" "$record"
    ;;
stop)
    if is_running; then
        kill -TERM "-$pid" 2>/dev/null || kill -TERM "$pid" 2>/dev/null || true
        tries=0
        while is_running; do
            tries=$((tries + 1))
            if [ "$tries" -eq 200 ]; then kill -KILL "-$pid" 2>/dev/null || true; fi
            if [ "$tries" -gt 400 ]; then echo "$name does not end" >&2; exit 1; fi
            sleep 0.05
        done
    fi
    rm -f "$record"
    ;;
status)
    if is_running; then exit 0; fi
    echo "$name does not run" >&2
    exit 1
    ;;
*)
    echo "orrery-daemon: unknown verb $verb" >&2
    exit 64
    ;;
esac
