# Replaces a file atomically by the rest of the input, of which the caller sets the `length`. The
# number of this process in the temporary name tells a write in progress from the rest of a killed
# one. `base` is the name, or a digest of a long one.
enter_parent
kind_of "./$name"
case $kind in
directory) fail is-a-directory ;;
other) fail not-a-regular-file ;;
file)
    attributes "./$name" || exit 1
    octal
    : "${want_mode:=$mode}" "${want_uid:=$uid}" "${want_gid:=$gid}"
    ;;
esac
: "${want_mode:=00600}"
umask 077
for old in "./.$base".*.orrery~; do
    process=${old#"./.$base."}
    process=${process%.orrery~}
    case $process in
    *[!0-9]*) ;;
    *) kill -0 "$process" 2>/dev/null || rm -f "$old" ;;
    esac
done
[ ! -L "./.$base.orrery~" ] || rm -f "./.$base.orrery~"
temporary=./.$base.$$.orrery~
rm -f "$temporary"
trap 'rm -f "$temporary"' EXIT
set -C
cat >"$temporary" || exit 1
set +C
attributes "$temporary" || exit 1
[ "$size" = "$length" ] || fail incomplete "$size"
own "$temporary" "$temporary"
publish "$temporary"
trap - EXIT
reply done
