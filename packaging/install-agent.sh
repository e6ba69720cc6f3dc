#!/bin/sh
# Installs the Orrery agent on this machine, joins @GATEWAY_COMMENT@ with a one-time token, and starts it.
# Run it as root. It can be repeated: what is done already stays as it is.
# The token below is a secret until it has been used: keep this file from other users.
set -eu
umask 022

gateway=@GATEWAY@
token=@TOKEN@
source=@SOURCE@            # a URL, a path on this machine, or nothing: from the gateway
sha256=@SHA256@
architecture=@ARCHITECTURE@
user=@USER@
root=${ORRERY_INSTALL_ROOT:-}   # a directory instead of /, for images and tests

bin=$root/usr/local/bin/orrery-agent
state=$root/var/lib/orrery-agent
unit=$root/etc/systemd/system/orrery-agent.service
changed=no

say() { printf 'orrery-agent: %s\n' "$*"; }
fail() { printf 'orrery-agent: error: %s\n' "$*" >&2; exit 1; }

digest() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$1" | cut -d' ' -f1
    elif command -v openssl >/dev/null 2>&1; then
        openssl dgst -sha256 -r "$1" | cut -d' ' -f1
    else
        fail "sha256sum is missing: install coreutils or busybox"
    fi
}

# The certificate of a gateway is that of its own authority; the digest protects the program, wherever it came from.
download() {
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --insecure --retry 5 --connect-timeout 10 -o "$2" "$1"
    elif command -v wget >/dev/null 2>&1; then
        wget -q --no-check-certificate -T 10 -O "$2" "$1"
    else
        fail "curl and wget are missing: install one of them"
    fi
}

matches() { [ -z "$sha256" ] || [ "$(digest "$1")" = "$sha256" ]; }

install_program() {
    mkdir -p "${bin%/*}"
    if [ -x "$bin" ] && [ -n "$sha256" ] && matches "$bin"; then
        return 0
    fi
    if [ -x "$bin" ] && [ "$source" = "$bin" ]; then
        matches "$bin" || fail "$bin does not have the SHA-256 $sha256"
        return 0
    fi
    new=$(mktemp "${bin%/*}/.orrery-agent.XXXXXX")
    trap 'rm -f "$new"' EXIT
    case $source in
        '')
            machine=$(uname -m)
            [ "$machine" = "$architecture" ] ||
                fail "the server has a program for $architecture, and this machine is $machine: use --program"
            download "https://$gateway/agent/v1/program" "$new" || fail "no download from $gateway"
            ;;
        http://* | https://*) download "$source" "$new" || fail "no download from $source" ;;
        *) cp "$source" "$new" || fail "cannot read $source" ;;
    esac
    matches "$new" || fail "the program does not have the SHA-256 $sha256; nothing was installed"
    chmod 755 "$new"
    mv -f "$new" "$bin"
    trap - EXIT
    changed=yes
    say "installed $bin"
}

add_user() {
    [ -n "$user" ] && [ -z "$root" ] || return 0
    id "$user" >/dev/null 2>&1 && return 0
    useradd --system --home-dir /var/lib/orrery-agent --shell /usr/sbin/nologin "$user"
    say "added the user $user"
}

join() {
    if [ -e "$state/identity.json" ]; then
        say "has joined already"
        return 0
    fi
    mkdir -p "$state"
    chmod 700 "$state"
    # printf is part of the shell: the token is in no argument of a process.
    printf '%s\n' "$token" | "$bin" join "$gateway" --state "$state"
    if [ -n "$user" ] && [ -z "$root" ]; then
        chown -R "$user" "$state"
    fi
}

install_unit() {
    mkdir -p "${unit%/*}"
    new=$(mktemp "${unit%/*}/.orrery-agent.XXXXXX")
    trap 'rm -f "$new"' EXIT
    cat >"$new" <<'UNIT'
@UNIT@UNIT
    chmod 644 "$new"
    if [ -e "$unit" ] && [ "$(cat "$new")" = "$(cat "$unit")" ]; then
        rm -f "$new"
    else
        mv -f "$new" "$unit"
        changed=yes
        say "installed $unit"
    fi
    trap - EXIT
}

start() {
    if [ -n "$root" ] || ! [ -d /run/systemd/system ]; then
        say "no systemd here: start it with $bin run --state $state"
        return 0
    fi
    systemctl daemon-reload
    systemctl enable --quiet orrery-agent.service
    if [ "$changed" = yes ]; then
        systemctl restart orrery-agent.service
    else
        systemctl start orrery-agent.service
    fi
    say "started"
}

[ -n "$root" ] || [ "$(id -u)" -eq 0 ] || fail "run this as root"
install_program
add_user
join
install_unit
start
