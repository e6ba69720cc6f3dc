# Reads a file: its attributes, and its content or digest. The caller sets `how`: `stat`, `cat`, or
# a program that prints a digest; and `limit`, the maximum size to read.
enter "$dir" || absent
kind_of "./$name"
[ "$kind" != none ] || absent
attributes "./$name" || absent
if [ "$how" = stat ] || [ "$kind" != file ]; then
    reply attributes
    printf '%s\n' "$line"
    exit 0
fi
[ "$size" -le "$limit" ] || fail too-large
{
    is_open "./$name" || fail changed "$dir/$name"
    reply content
    printf '%s\n' "$line"
    $how <&3
} 3<"./$name"
