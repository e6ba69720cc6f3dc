# First process of a node of the provider `netns`, in namespaces of its own. The node ends with it.
#
# Arguments: directory of the node, lower directory, host name.
set -eu
directory=$1
lower=$2
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$directory/upper,workdir=$directory/work" "$directory/root"
cd "$directory/root"
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys 2>/dev/null || true
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
# Home directories of this machine are none of the node's business.
for home in root home; do
    mkdir -p "$directory/private/$home" "$home"
    mount --bind "$directory/private/$home" "$home"
done
chmod 700 root
mkdir -p run/sshd run/orrery-ssh
# Only the keys of this node are in it, with the rights that sshd wants.
cp "$directory/ssh/host_key" "$directory/ssh/authorized_keys" "$directory/ssh/sshd_config" run/orrery-ssh/
chmod 700 run/orrery-ssh
chmod 600 run/orrery-ssh/host_key
echo "$3" >/proc/sys/kernel/hostname
echo ready >"$directory/ready"
exec chroot . /bin/sh -c '
    /usr/sbin/sshd -D -e -f /run/orrery-ssh/sshd_config </dev/null >/run/orrery-ssh/log 2>&1 &
    # Waiting also reaps the orphans that this process inherits.
    wait $!'
