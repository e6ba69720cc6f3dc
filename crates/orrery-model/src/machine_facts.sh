# Facts of a machine, one a line: `name value`. Reads only.
say() { [ -z "$2" ] || printf '%s %s\n' "$1" "$2"; }
say kernel "$(uname -s)"
say kernel_release "$(uname -r)"
say arch "$(uname -m)"
say host_name "$(uname -n)"
say user "$(id -un 2>/dev/null)"
say uid "$(id -u)"
if [ -r /etc/os-release ]; then
    say os "$(. /etc/os-release; printf %s "$ID")"
    say os_version "$(. /etc/os-release; printf %s "$VERSION_ID")"
    say os_name "$(. /etc/os-release; printf %s "$PRETTY_NAME")"
fi
if [ -r /proc/meminfo ]; then
    while read -r name value unit; do
        [ "$name" != MemTotal: ] || say memory_kib "$value"
    done </proc/meminfo
fi
say processors "$(getconf _NPROCESSORS_ONLN 2>/dev/null)"
for address in $(hostname -I 2>/dev/null || hostname -i 2>/dev/null); do say address "$address"; done
# A file server that does not answer must not hold up the others.
{ df -klP || df -kP; } 2>/dev/null | while read -r device size used free share place; do
    case $device in /dev/*) say mount "$size $free $place" ;; esac
done
if command -v sudo >/dev/null 2>&1; then say offers sudo; fi
if command -v doas >/dev/null 2>&1; then say offers doas; fi
exit 0
