# Finds out what the machine offers, and removes records of commands that earlier connections left:
# those of processes that are gone, and those without a process after a day.
for record in /tmp/.orrery-run-*; do
    [ -f "$record" ] && [ ! -h "$record" ] && [ -O "$record" ] || continue
    child=
    read -r child <"$record"
    case $child in
    '' | *[!0-9]*) [ -n "$(find "$record" -prune -mtime +0)" ] || continue ;;
    *)
        if kill -s 0 "-$child" || kill -s 0 "$child"; then
            continue
        fi
        ;;
    esac
    rm -f "$record"
done 2>/dev/null
reply probe
printf 'uid %s\n' "$(id -u)"
printf 'path %s\n' "$PATH"
for program in md5sum sha1sum sha256sum curl; do
    if command -v "$program" >/dev/null 2>&1; then
        printf 'tool %s\n' "$program"
    fi
done
case $(command -v setsid) in
/*) printf 'session %s\n' "$(command -v setsid)" ;;
esac
case $(mv -fT ./.orrery-none~ ./.orrery-none2~ 2>&1) in
*ption*) ;;
*) printf 'tool mv-t\n' ;;
esac
{
    if [ /dev/null -ef /dev/fd/3 ] && [ ! / -ef /dev/fd/3 ]; then
        printf 'tool fd\n'
    fi
} 3</dev/null 2>/dev/null
