# Functions that the operations of a shell target share. The caller sets `nonce`, `me` (own uid),
# `move` (rename that never moves into a directory, if there is one) and `verify` (not empty if
# /dev/fd names open files).
unset CDPATH IFS QUOTING_STYLE TIME_STYLE
LC_ALL=C
export LC_ALL
newline='
'

# Begins the reply; output before it is not a part of it.
reply() {
    printf '\n@%s %s\n' "$nonce" "$1"
}

fail() {
    reply "!$1"
    printf '%s' "$2"
    exit 0
}

absent() {
    reply absent
    exit 0
}

# Sets `line`, `permissions`, `uid`, `gid` and `size` of a name, without following a link.
attributes() {
    line=$(ls -ldn "$1" && echo x) || return 1
    line=${line%?x}
    set -f
    set -- $line
    set +f
    permissions=$1 uid=$3 gid=$4 size=$5
}

# Sets `kind` of a name, without following a link.
kind_of() {
    if [ -L "$1" ]; then
        kind=link
    elif [ -d "$1" ]; then
        kind=directory
    elif [ -f "$1" ]; then
        kind=file
    elif [ -e "$1" ]; then
        kind=other
    else
        kind=none
    fi
}

# Makes a directory the current one, so that later changes of its path have no effect. Returns 1 if
# it does not exist, and 2 if a part of the path is not a directory.
enter() {
    cd -P "$1" 2>/dev/null && [ "$PWD" = "$1" ] || walk "$1"
}

# Enters a directory part by part, and follows links of root, of this user, and of the owner of the
# destination.
walk() {
    cd -P / || return 1
    rest=${1#/}/ links=0 followed=
    while [ -n "$rest" ]; do
        part=${rest%%/*} rest=${rest#*/}
        case $part in
        '' | .) continue ;;
        ..)
            cd -P .. || return 1
            continue
            ;;
        esac
        here=${PWD%/}
        if [ -L "./$part" ]; then
            links=$((links + 1))
            [ "$links" -le 40 ] || fail too-many-links
            attributes "./$part" || return 1
            leads_to=${line#*" ./$part -> "} link_uid=$uid
            attributes . || return 1
            case $uid in
            0 | "$me") uid=$link_uid ;;
            esac
            case $uid in
            0 | "$me") ;;
            *) followed=$followed$uid\ $here/$part$newline ;;
            esac
            case $leads_to in
            /*) cd -P / || return 1 ;;
            esac
            rest=$leads_to/$rest
        elif cd -P "./$part" 2>/dev/null; then
            [ "$PWD" = "$here/$part" ] || fail changed "$here/$part"
        elif [ -d "./$part" ]; then
            fail denied
        elif [ -e "./$part" ]; then
            return 2
        else
            return 1
        fi
    done
    [ -z "$followed" ] || attributes . || return 1
    while [ -n "$followed" ]; do
        first=${followed%%"$newline"*} followed=${followed#*"$newline"}
        [ "${first%% *}" = "$uid" ] || fail foreign-link "$first"
    done
}

# Enters the directory of a name that is to be changed.
enter_parent() {
    enter "$dir" && return
    [ $? = 2 ] && fail not-a-directory
    fail parent-missing
}

# Returns 0 if the file that is open as 3 is the one of this name, and no link.
is_open() {
    [ -z "$verify" ] || { [ ! -L "$1" ] && [ "$1" -ef /dev/fd/3 ]; }
}
