#!/bin/sh
# Becomes the sshd of a host that Ansible manages, in the calling network namespace. The host's /etc, /run and journal are its own: nothing
# is written to the machine's, and all of it is gone when the last process in it ends.
#
#     target.sh FOLDER PROGRAM
#
# FOLDER has the host's key (host) and the public key that may log in as the user admin (key.pub). PROGRAM is the host's udpath.
set -eu
[ "${TARGET:-}" = inside ] || exec env TARGET=inside unshare --mount --propagation private -- "$0" "$@"
cd "$1"
program=$2

mount -n -t tmpfs -o mode=755 target /usr/local/sbin
ln -s "$program" /usr/local/sbin/udpath
mount -n -t bpf target /sys/fs/bpf
mount -n -t tmpfs -o mode=755 target /var/lib
# Over the machine's /etc, in memory.
mkdir -p /var/lib/etc/upper /var/lib/etc/work
mount -n -t overlay -o lowerdir=/etc,upperdir=/var/lib/etc/upper,workdir=/var/lib/etc/work target /etc
mount -n -t tmpfs -o mode=755 target /run
mkdir /run/sshd

install -d -o 64999 -g 64999 /var/lib/admin
# The user as whom sshd talks to clients that have not logged in, which its package would make.
grep -q '^sshd:' /etc/passwd || echo 'sshd:x:64998:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd
echo 'admin:x:64999:64999::/var/lib/admin:/bin/sh' >> /etc/passwd
echo 'admin:*:20000:0:99999:7:::' >> /etc/shadow
echo 'admin:x:64999:' >> /etc/group
install -m 440 /dev/null /etc/sudoers.d/admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/admin
# sudo looks up the machine's name.
echo "127.0.0.1 localhost $(hostname)" > /etc/hosts

install -m 600 host /etc/host_key
install -m 644 key.pub /etc/authorized_keys
cat > /etc/sshd_config <<'CONFIG'
HostKey /etc/host_key
AuthorizedKeysFile /etc/authorized_keys
PasswordAuthentication no
PidFile none
Subsystem sftp internal-sftp
CONFIG
exec /var/cache/udpath/sshd -D -e -f /etc/sshd_config
