# Functions for operations that change files. The caller sets `want_mode`, `want_uid` and
# `want_gid`, which may be empty.

# Prints three permission letters as a digit.
digit() {
    set -- "$1" 0
    case $1 in r*) set -- "$1" $(($2 + 4)) ;; esac
    case $1 in ?w?) set -- "$1" $(($2 + 2)) ;; esac
    case $1 in *[xst]) set -- "$1" $(($2 + 1)) ;; esac
    printf %s "$2"
}

# Sets `mode` to the octal form of `permissions`.
octal() {
    set -- "${permissions#?}"
    set -- "$1" "${1#???}"
    set -- "${1%"$2"}" "${2%"${2#???}"}" "${2#???}"
    set -- "$1" "$2" "${3%"${3#???}"}" 0
    case $1 in *[sS]) set -- "$1" "$2" "$3" $(($4 + 4)) ;; esac
    case $2 in *[sS]) set -- "$1" "$2" "$3" $(($4 + 2)) ;; esac
    case $3 in *[tT]) set -- "$1" "$2" "$3" $(($4 + 1)) ;; esac
    # Five digits: with fewer, some implementations keep the set-id bits of a directory.
    mode=0$4$(digit "$1")$(digit "$2")$(digit "$3")
}

# Sets owner and mode of $2, which is the file that has the name $1. Setting an equal owner would
# need privileges. Changing the owner clears the set-id bits, so the mode is set after it.
own() {
    attributes "$1" || exit 1
    octal
    owner=
    [ -z "$want_uid" ] || [ "$want_uid" = "$uid" ] || owner=$want_uid
    [ -z "$want_gid" ] || [ "$want_gid" = "$gid" ] || owner=$owner:$want_gid
    if [ -n "$owner" ]; then
        chown "$owner" "$2" || exit 1
        chmod "${want_mode:-$mode}" "$2" || exit 1
    elif [ -n "$want_mode" ] && [ "$want_mode" != "$mode" ]; then
        chmod "$want_mode" "$2" || exit 1
    fi
}

# Gives a new file its name. Where a rename would follow a link of that name, the link is removed
# first.
publish() {
    if [ "$move" = 'mv -f' ] && [ -L "./$name" ]; then
        rm -f "./$name" || exit 1
    fi
    $move "$1" "./$name" || exit 1
}
