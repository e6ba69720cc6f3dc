# Sets owner and mode of a file or directory.
enter_parent
kind_of "./$name"
case $kind in
none) fail not-found ;;
directory)
    here=${PWD%/}
    cd -P "./$name" || exit 1
    [ "$PWD" = "$here/$name" ] || fail changed "$here/$name"
    own . .
    ;;
file)
    if [ -n "$verify" ] && [ -r "./$name" ]; then
        {
            is_open "./$name" || fail changed "$dir/$name"
            own "./$name" /dev/fd/3
        } 3<"./$name" || exit 1
    else
        own "./$name" "./$name"
    fi
    ;;
*) fail not-a-regular-file ;;
esac
reply done
