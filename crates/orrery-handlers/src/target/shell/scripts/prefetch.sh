# Prints the attributes of the names in a directory, which it enters. A refused directory ends the
# subshell of the caller, and has no `end`.
directory() {
    printf 'directory\n'
    enter "$1" || {
        printf 'missing\nend\n'
        exit 0
    }
    shift
    for name in "$@"; do
        shift
        if [ -e "./$name" ] || [ -L "./$name" ]; then
            set -- "$@" "./$name"
        else
            printf 'absent ./%s\n' "$name"
        fi
    done
    [ "$#" = 0 ] || ls -ldn "$@" 2>/dev/null
}

# Prints the digests of the regular files among the names.
digests() {
    program=$1
    shift
    for name in "$@"; do
        shift
        if [ -f "./$name" ] && [ ! -L "./$name" ] && [ -r "./$name" ]; then
            set -- "$@" "./$name"
        fi
    done
    [ "$#" = 0 ] || "$program" "$@" 2>/dev/null
}
