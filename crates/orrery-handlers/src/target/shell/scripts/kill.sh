# Ends the process groups of commands, whose `records` are separated by spaces: first politely, then
# for certain, even after the exit of the command itself. A command that has no record yet does not
# start any more.
umask 077
for record in $records; do
    (
        set -C
        : >"$record"
    ) && continue
    child= tries=0
    while [ -e "$record" ] && [ -z "$child" ] && [ "$tries" -lt 20 ]; do
        read -r child <"$record" || sleep 0.1 || sleep 1
        tries=$((tries + 1))
    done
    case $child in
    '' | *[!0-9]*) continue ;;
    esac
    kill -TERM "-$child" || kill -s TERM "$child"
    tries=0
    while [ "$tries" -lt 20 ] && kill -s 0 "$child"; do
        sleep 0.1 || sleep 1
        tries=$((tries + 1))
    done
    kill -KILL "-$child" || kill -s KILL "$child"
    rm -f "$record"
done 2>/dev/null
reply done
