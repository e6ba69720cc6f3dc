# Runs `found` with the arguments of this script, in a session of its own, with the rest of the
# input. The caller sets `directory`; the function `start`, which sets the variables of the command
# and executes it; and `record`, the file with the number of its process group, for the script that
# ends it. That script also creates the record of a command that must not start any more.
[ -n "$found" ] || {
    printf '\n@%s !command-not-found\n' "$nonce"
    exit 0
}
[ -z "$directory" ] || cd "$directory" 2>/dev/null || {
    printf '\n@%s !no-directory\n' "$nonce"
    exit 0
}
(
    umask 077
    set -C
    : >"$record"
) 2>/dev/null || {
    [ ! -e "$record" ] || exit 1
}
printf '\n@%s run\n' "$nonce"
printf '\n@%s run\n' "$nonce" >&2
exec 3<&0
(start "$@") <&3 3<&- &
child=$!
exec 3<&- </dev/null
[ ! -e "$record" ] || printf '%s\n' "$child" >"$record"
wait "$child" 2>/dev/null
code=$?
rm -f "$record"
exit "$code"
