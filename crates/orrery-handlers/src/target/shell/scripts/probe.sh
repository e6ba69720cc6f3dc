# Finds out what the machine offers.
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
