# Creates a symbolic link to `leads_to`, or redirects one.
enter_parent
kind_of "./$name"
case $kind in
none) ln -s -- "$leads_to" "./$name" || exit 1 ;;
link)
    temporary=./.$base.$$.orrery~
    rm -f "$temporary"
    trap 'rm -f "$temporary"' EXIT
    ln -s -- "$leads_to" "$temporary" || exit 1
    publish "$temporary"
    trap - EXIT
    ;;
directory) fail is-a-directory ;;
*) fail not-a-symlink ;;
esac
reply done
