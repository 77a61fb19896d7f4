#!/usr/bin/env bash
# Checks every level of scripts/setup.sh as on a new machine: nothing installed, nothing below /var/cache, no network.
# apt and dpkg are stubs that provide small packages with the same layout. Run it with scripts/fresh-root.sh, which
# hides /var/cache.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "check-setup: $*" >&2; exit 1; }
[ "$(findmnt -n -o SOURCE /var/cache)" = fresh-root ] || fail "run it as: scripts/fresh-root.sh scripts/check-setup.sh"

umount -n /var/cache/udpath 2>/dev/null || true
rm -rf /var/cache/udpath
work=$(mktemp -d)
export log=$work/log packages=$work/packages PATH="$work/bin:$PATH"
mkdir -p "$work/bin" "$packages"
: > "$log"

# package NAME VERSION: builds a stub package from the directory $work/NAME.
package() {
    mkdir -p "$work/$1/DEBIAN"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: test\n' \
        "$1" "$2" > "$work/$1/DEBIAN/control"
    dpkg-deb --build "$work/$1" "$packages/$1_$2_all.deb" >/dev/null
}
# kernel_package VERSION: builds that of a kernel, with one module.
kernel_package() {
    local image=linux-image-$1-amd64 modules
    modules=$work/$image/lib/modules/$1
    mkdir -p "$work/$image/boot" "$modules"/kernel/{crypto,fs,lib,net,sound} "$modules"/kernel/drivers/{char,net,virtio,gpu}
    echo "kernel $1" > "$work/$image/boot/vmlinuz-$1"
    echo kernel/fs/ext4.ko > "$modules/modules.builtin"
    echo module > "$modules/kernel/net/udp_diag.ko"
    package "$image" "$1-1"
}
kernel_package 6.12.99
xz "$work"/linux-image-6.12.99-amd64/lib/modules/*/kernel/net/udp_diag.ko
package linux-image-6.12.99-amd64 6.12.99-1
# Not compressed.
kernel_package 6.1.0-99
mkdir -p "$work/prometheus/usr/bin"
for name in prometheus promtool; do
    printf '#!/bin/sh\n' > "$work/prometheus/usr/bin/$name"
    chmod 755 "$work/prometheus/usr/bin/$name"
done
package prometheus 2.42.0
mkdir -p "$work/kubernetes-client/usr/bin"
printf '#!/bin/sh\n' > "$work/kubernetes-client/usr/bin/kubectl"
chmod 755 "$work/kubernetes-client/usr/bin/kubectl"
package kubernetes-client 1.20.5
mkdir -p "$work/openssh-server/usr/sbin"
printf '#!/bin/sh\n' > "$work/openssh-server/usr/sbin/sshd"
chmod 755 "$work/openssh-server/usr/sbin/sshd"
package openssh-server 9.2
mkdir -p "$work/chrony/usr/sbin"
printf '#!/bin/sh\n' > "$work/chrony/usr/sbin/chronyd"
chmod 755 "$work/chrony/usr/sbin/chronyd"
package chrony 4.3
mkdir -p "$work"/freeradius/usr/{sbin,lib/freeradius}
printf '#!/bin/sh\n' > "$work/freeradius/usr/sbin/freeradius"
chmod 755 "$work/freeradius/usr/sbin/freeradius"
echo module > "$work/freeradius/usr/lib/freeradius/rlm_pap.so"
package freeradius 3.2.1
mkdir -p "$work/snmpd/usr/sbin"
printf '#!/bin/sh\n' > "$work/snmpd/usr/sbin/snmpd"
chmod 755 "$work/snmpd/usr/sbin/snmpd"
package snmpd 5.9.3
mkdir -p "$work/nfdump/usr/bin"
printf '#!/bin/sh\n' > "$work/nfdump/usr/bin/nfcapd"
chmod 755 "$work/nfdump/usr/bin/nfcapd"
package nfdump 1.7.1
mkdir -p "$work"/{slurm-client/usr/bin,slurmctld/usr/sbin,slurmd/usr/sbin,slurm-wlm-basic-plugins/usr/lib,libhwloc15/usr/lib}
printf '#!/bin/sh\n' > "$work/slurm-client/usr/bin/srun"
chmod 755 "$work/slurm-client/usr/bin/srun"
for name in slurm-client slurmctld slurmd slurm-wlm-basic-plugins libhwloc15; do
    package $name 22.05.8
done

cat > "$work/bin/apt-get" <<'STUB'
#!/bin/sh
echo "apt-get $*" >> "$log"
case $1 in
    update) [ ! -e "$log.offline" ] ;;
    install) for name; do touch "$packages/$name.installed"; done ;;
    download) shift; for name; do case $name in -* | *=*) ;; *) cp "$packages/$name"_*.deb . ;; esac; done ;;
    *) exit 100 ;;
esac
STUB
cat > "$work/bin/apt-cache" <<'STUB'
#!/bin/sh
case $2 in
    linux-image-6.12-amd64) echo "  Depends: linux-image-6.12.99-amd64" ;;
    linux-image-amd64) echo "  Depends: linux-image-6.1.0-99-amd64" ;;
esac
STUB
cat > "$work/bin/dpkg-query" <<'STUB'
#!/bin/sh
for name; do :; done
[ -e "$packages/$name.installed" ] || exit 1
echo installed
STUB
# mmdebstrap ... SUITE TAR
cat > "$work/bin/mmdebstrap" <<'STUB'
#!/bin/sh
for tar; do :; done
work=$(mktemp -d)
mkdir -p "$work/usr/include/aarch64-linux-musl"
echo header > "$work/usr/include/aarch64-linux-musl/stdio.h"
tar -C "$work" -cf "$tar" ./usr
rm -r "$work"
STUB
chmod 755 "$work"/bin/*

# Without root and with something missing: it prints one line with the command to run, and changes
# nothing.
# The repository may be closed to other users.
cp scripts/setup.sh "$work/setup.sh"
chmod 755 "$work" "$work/setup.sh"
for level in build test; do
    said=$(cd / && setpriv --reuid 65534 --regid 65534 --clear-groups "$work/setup.sh" $level 2>&1) \
        && fail "$level: installs without root"
    case $said in
        "setup: missing: "*clang*"run as root: scripts/setup.sh $level") ;;
        *) fail "$level: without root it says: $said" ;;
    esac
    [ ! -s "$log" ] && [ ! -e /var/cache/udpath ] || fail "$level: changes something without root"
done
said=$(scripts/setup.sh nonsense 2>&1) && fail "takes a level that does not exist"
case $said in *"build test bench"*) ;; *) fail "an unknown level: $said" ;; esac

# Names the packages installed so far.
installed() { sed -n 's/^apt-get install\( -[^ ]*\)* //p' "$log" | tr ' ' '\n' | sort; }

# To build and run the demo: a few packages, nothing unpacked.
most=6
scripts/setup.sh build 2>"$work/said" || fail "build: exit $?: $(cat "$work/said")"
[ "$(installed | wc -l)" -le $most ] || fail "build installs more than $most packages: $(installed | xargs)"
for name in clang libbpf-dev gcc; do
    installed | grep -qx "$name" || fail "build does not install $name: $(installed | xargs)"
done
for name in chromium nsd qemu-system-x86 socat tmux dpdk-dev sockperf; do
    ! installed | grep -qx "$name" || fail "build installs $name"
done
[ ! -e /var/cache/udpath ] || fail "build unpacks $(ls /var/cache/udpath)"
# `make demo` uses only this level.
demo=$(make --no-print-directory -n demo | grep -o 'scripts/setup.sh.*' || true)
[ "$demo" = "scripts/setup.sh build" ] || fail "make demo runs: $demo"
: > "$log"
said=$(scripts/setup.sh build 2>&1) || fail "build, the second run: exit $?"
[ -z "$said" ] && [ ! -s "$log" ] || fail "build, the second run is not silent: $said $(cat "$log")"

# Without a network: one line names what is missing, and nothing changes.
touch "$log.offline"
said=$(scripts/setup.sh 2>&1) && fail "test: succeeds without a network"
case $said in
    "setup: missing: "*"kernel kernel-6.1 prometheus promtool kubectl sshd chronyd snmpd freeradius nfdump slurm; apt's sources cannot be read") ;;
    *) fail "test: without a network it says: $said" ;;
esac
[ ! -e /var/cache/udpath ] || fail "test: leaves $(ls /var/cache/udpath) without a network"
rm "$log.offline"
: > "$log"

# For tests: also the peers, the kernels, prometheus, promtool, kubectl, sshd, chronyd, snmpd, nfdump, Slurm, and freeradius with its modules.
(umask 077 && scripts/setup.sh) 2>"$work/said" || fail "test: exit $?: $(cat "$work/said")"
grep -q '^apt-get update' "$log" || fail "test: installs without an update of the lists: $(cat "$log")"
for name in iproute2 qemu-system-x86 nsd chromium; do
    installed | grep -qx "$name" || fail "test does not install $name: $(cat "$log")"
done
for name in clang dpdk-dev iperf3 sockperf; do
    ! installed | grep -qx "$name" || fail "test installs $name"
done
cd /var/cache/udpath
for each in "kernel 6.12.99" "kernel-6.1 6.1.0-99"; do
    read -r name version <<< "$each"
    [ "$(cat $name/boot/vmlinuz-*)" = "kernel $version" ] || fail "no Linux $version in $(pwd)/$name"
    [ "$(cat $name/lib/modules/*/kernel/net/udp_diag.ko)" = module ] || fail "$name: modules are not unpacked as they are loaded"
    [ "$(stat -c %a $name)" = 755 ] || fail "the folder of $name is closed to others"
done
for name in prometheus promtool kubectl sshd; do
    [ -x $name ] || fail "no $name in $(pwd)"
done
[ -x chronyd ] || fail "no chronyd in $(pwd)"
[ -x freeradius/usr/sbin/freeradius ] || fail "no freeradius in $(pwd)"
[ "$(cat freeradius/usr/lib/freeradius/rlm_pap.so)" = module ] || fail "freeradius has no modules"
[ "$(stat -c %a freeradius)" = 755 ] || fail "the folder of freeradius is closed to others"
[ -x snmpd ] || fail "no snmpd in $(pwd)"
[ -x nfdump/usr/bin/nfcapd ] || fail "no nfcapd in $(pwd)"
[ -x slurm/usr/bin/srun ] && [ -d slurm/usr/sbin ] && [ -d slurm/usr/lib ] || fail "no Slurm in $(pwd)"
[ "$(echo *)" = "chronyd freeradius kernel kernel-6.1 kubectl nfdump prometheus promtool slurm snmpd sshd" ] || fail "leaves behind: $(echo *)"
cd - >/dev/null

# If nothing is missing, nothing is run or printed.
: > "$log"
said=$(scripts/setup.sh test 2>&1) || fail "test, the second run: exit $?"
[ -z "$said" ] && [ ! -s "$log" ] || fail "test, the second run is not silent: $said $(cat "$log")"
# Benchmarks also need the programs that they compare with.
scripts/setup.sh bench 2>/dev/null || fail "bench: exit $?"
[ "$(installed | xargs)" = "dpdk-dev iperf3 sockperf" ] || fail "bench installs $(installed | xargs)"
# What is published needs its own tools, and not those of benchmarks.
: > "$log"
scripts/setup.sh dist 2>/dev/null || fail "dist: exit $?"
for name in lintian mmdebstrap buildah; do
    installed | grep -qx "$name" || fail "dist does not install $name: $(installed | xargs)"
done
for name in dpdk-dev iperf3 sockperf; do
    ! installed | grep -qx $name || fail "dist installs $name"
done
[ "$(cat /var/cache/udpath/musl-aarch64/stdio.h)" = header ] || fail "dist: no headers for aarch64"
left=$(ls -d /var/cache/udpath/musl*)
[ "$left" = /var/cache/udpath/musl-aarch64 ] || fail "dist leaves behind: $left"
rm -rf "$work"
