# Lists the names in a directory, each ended by a zero byte.
enter_parent
kind_of "./$name"
case $kind in
none) fail not-found ;;
directory) ;;
*) fail not-a-directory ;;
esac
here=${PWD%/}
cd -P "./$name" 2>/dev/null && [ -r . ] || fail denied
[ "$PWD" = "$here/$name" ] || fail changed "$here/$name"
reply names
for entry in * .[!.]* ..?*; do
    if [ -e "./$entry" ] || [ -L "./$entry" ]; then
        printf '%s\0' "$entry"
    fi
done
