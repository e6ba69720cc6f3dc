# Starts a helper from the cache of the user, after a check of its digest. The caller appends the
# choice of the binary, and sets `upload`: the name of a new file in the cache, or nothing.
# For the cache. The helper, and what it runs, has the mask of the login.
mask=$(umask)
umask 077
platform=$(uname -sm)
me=$(id -u)
case $me in
0) cache=${XDG_CACHE_HOME:-/var/cache}/orrery ;;
*) cache=${XDG_CACHE_HOME:-$HOME/.cache}/orrery ;;
esac
reason="there is no helper for $platform"
digest=

say() {
    printf '\n@orrery %s\n' "$1"
    exit 0
}

# Returns 0 if a binary for this platform, loader and version of glibc can run here.
fits() {
    [ "$1" = "$platform" ] || return 1
    if [ -n "$2" ] && [ ! -e "$2" ]; then
        reason="the machine has no $2"
        return 1
    fi
    [ -n "$3" ] || return 0
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
    minor=${libc##*.}
    case $minor in
    '' | *[!0-9]*) return 0 ;;
    esac
    [ "$minor" -ge "$3" ] && return 0
    reason="the machine has $libc, and the helper needs 2.$3"
    return 1
}

# Starts the helper if its file is the expected one.
start() {
    [ -n "$digest" ] || say "impossible $reason"
    command -v sha256sum >/dev/null 2>&1 || say "impossible the machine has no sha256sum"
    mkdir -p "$cache" 2>/dev/null || say "impossible $cache cannot be created"
    # Others must not be able to exchange the file.
    set -- $(ls -ldn "$cache")
    case $1,$3 in
    d????-??-*,"$me") ;;
    *) say "impossible $cache does not belong to this user alone" ;;
    esac
    file=$cache/helper-$digest
    if [ -n "$upload" ]; then
        chmod 700 "$cache/$upload" && verified "$cache/$upload" || {
            rm -f "$cache/$upload"
            say 'impossible the upload is incomplete'
        }
        mv -f "$cache/$upload" "$file" || say "impossible $file cannot be written"
        find "$cache"/helper-* "$cache"/upload-* -prune -type f -mtime +7 -exec rm -f {} + 2>/dev/null
    else
        verified "$file" || say "missing $digest $cache"
        touch -c "$file"
    fi
    umask "$mask"
    exec "$file" $arguments
}

verified() {
    [ -f "$1" ] && [ ! -L "$1" ] || return 1
    case $(sha256sum <"$1") in
    "$digest"*) return 0 ;;
    esac
    return 1
}
