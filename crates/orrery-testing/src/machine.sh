# First process of a machine of a test, in namespaces of its own. The machine ends with its input: however the test ends, the
# pipe closes, and the kernel ends all processes of the machine and removes its mounts and network interfaces.
#
# Arguments: host name, then programs that are available in /run/programs.
set -eu
name=$1
shift
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/programs /run/etc /run/sshd
for program; do
    place=/run/programs/${program##*/}
    : >"$place"
    mount --bind "$program" "$place"
done
# Accounts, rules of sudo and names are the machine's own.
cp -a /etc/. /run/etc
mount --bind /run/etc /etc
rm -f /etc/resolv.conf
: >/etc/resolv.conf
echo "127.0.0.1 localhost $name" >/etc/hosts
echo "$name" >/proc/sys/kernel/hostname
for directory in /home /root /srv /tmp /var/cache /var/tmp /var/lib/sudo; do
    if [ -d "$directory" ]; then mount -t tmpfs -o mode=755 tmpfs "$directory"; fi
done
chmod 1777 /tmp /var/tmp
chmod 700 /root
ip link set lo up
echo ready
# Waiting for one child also reaps the orphans that this process inherits.
exec 3<&0
cat <&3 >/dev/null &
wait $!
