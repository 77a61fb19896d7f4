#!/usr/bin/env bash
# Installs the missing Debian packages of a level, and prints their names.
#
#     scripts/setup.sh build    for building and for the lab: `make demo`
#     scripts/setup.sh test     also test peers, a kernel to boot and Prometheus: `make test`, `make check` (default)
#     scripts/setup.sh bench    also packages that only `make bench` needs
#     scripts/setup.sh dist     also packages that only `make dist` needs
#
# The kernels for the tests' emulated machine, prometheus, promtool, kubectl, sshd, chronyd, snmpd, freeradius, nfdump and Slurm are unpacked
# below /var/cache/udpath, not installed; so are musl's headers for aarch64. If nothing is missing, nothing is changed. Needs root only to install.
set -euo pipefail

levels=(build test bench dist)
level=${1:-test}
if [ $# -gt 1 ] || [[ " ${levels[*]} " != *" $level "* ]]; then
    echo "setup: unknown level '$*'; expected one of: ${levels[*]}" >&2
    exit 2
fi

# Each level includes those before it. scripts/check-setup.sh keeps `build` at 6 packages or fewer.
# level  package             what for
table="
build    clang               compiles the BPF programs
build    libbpf-dev          headers of the BPF programs
build    linux-libc-dev      the kernel's headers
build    gcc                 links Rust programs
build    libc6-dev           the C library to link to
build    make                runs the Makefile
test     iproute2            looks at what the lab made
test     ethtool             looks at the lab's devices
test     procps              ps and sysctl
test     util-linux          unshare, setpriv, nsenter
test     strace              kills a program at each of its system calls
test     socat               UDP peer
test     netcat-openbsd      UDP peer
test     bind9-dnsutils      DNS client (dig)
test     dnsperf             DNS load generator
test     nsd                 DNS server
test     knot                DNS server
test     unbound             DNS resolver
test     bind9               DNS server
test     rsyslog             syslog server
test     coturn              TURN server
test     knot-dnsutils       DNS load generator over XDP (kxdpgun)
test     ntpsec-ntpdig       NTP client
test     freeradius-utils    RADIUS client
test     libsnmp40           libraries of the SNMP agent, which is unpacked below
test     ansible-core        runs the collection in deploy/ansible
test     openssh-client      reaches the hosts of that
test     libwrap0            library of their sshd, which is unpacked below
test     sudo                becomes root there
test     parallel            runs a load's segments
test     python3-kubernetes  knows the fields of Kubernetes' manifests
test     nats-server         carries the messages of fleets
test     faketime            gives one agent of a fleet another clock
test     irqbalance          moves interrupts that udpath has placed
test     qemu-system-x86     emulates a machine with several nodes and many queues
test     busybox-static      user space of the emulated machine
test     xz-utils            unpacks kernel modules
test     systemd             reads the units that keep settings over a reboot
test     udev                reads the rules that keep settings over a reboot
test     nftables            rules that a snapshot must show
test     iptables            rules that a snapshot must show
test     linux-perf          samples the same interval as udpath
test     tcpdump             packet sockets for udpath to find
test     tmux                a terminal to draw on
test     chromium            opens the HTML report
bench    dpdk-dev            testpmd, a baseline; a large package
bench    sockperf            transactions, to compare load's rates with
bench    iperf3              streams, to compare load's rates with
dist     musl-tools          compiles C for the static program
dist     gcc-aarch64-linux-gnu  compiles C for the one of aarch64, and links it
dist     qemu-user-static    runs that
dist     dpkg-dev            finds the libraries that a package depends on
dist     lintian             checks the package
dist     mmdebstrap          makes the Debian that the package is installed in
dist     buildah             makes the container image
dist     crun                runs it
"

wanted=()
while read -r of package _; do
    [ -n "$package" ] || continue
    wanted+=("$package")
done < <(for each in "${levels[@]}"; do
    # Benchmarks are not published.
    [ "$each $level" != "bench dist" ] || continue
    grep "^$each " <<< "$table"
    [ "$each" != "$level" ] || break
done)

# The kernels of Debian 12: its own, and its newest, which reports queues and NAPI over netlink. Each is the newest
# package of its version in the archive, on which the package named here depends.
# name           package                  version
kernels="
kernel           linux-image-6.12-amd64   6.12
kernel-6.1       linux-image-amd64        6.1
"
# One download for all checkouts of a machine; it can be removed at any time.
caches=/var/cache/udpath

# fetch_kernel NAME PACKAGE VERSION: unpacks the parts of the kernel package that the emulated machine needs, the modules
# uncompressed, and then moves them into place, so that a partial copy is never visible.
fetch_kernel() (
    cache=$caches/$1
    package=$(apt-cache depends "$2" | sed -n "s/^ *Depends: \\(linux-image-$3\\.[^ ]*\\)$/\\1/p")
    if [ -z "$package" ]; then
        echo "setup: $2 depends on no package of Linux $3; are Debian 12 and its security updates among apt's sources?" >&2
        exit 1
    fi
    echo "setup: unpacking $package into $cache" >&2
    mkdir -p "$(dirname "$cache")"
    work=$(mktemp -d "$cache.XXXXXX")
    # Remove the package and its directory in any case.
    trap "rm -rf '$work'" EXIT
    if ! (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package" >/dev/null); then
        echo "setup: cannot download $package; without it the tests of Linux $3 fail" >&2
        exit 1
    fi
    dpkg-deb -x "$work/$package"_*.deb "$work/all"
    tree=$(cd "$work/all" && echo lib/modules/*)
    mkdir -p "$work/wanted/boot" "$work/wanted/$tree/kernel/drivers"
    mv "$work"/all/boot/vmlinuz-* "$work/wanted/boot/"
    mv "$work/all/$tree/modules.builtin" "$work/wanted/$tree/"
    mv "$work/all/$tree"/kernel/{crypto,fs,lib,net} "$work/wanted/$tree/kernel/"
    mv "$work/all/$tree"/kernel/drivers/{char,net,virtio} "$work/wanted/$tree/kernel/drivers/"
    # 6.1's are not compressed.
    find "$work/wanted" -name '*.ko.xz' -exec xz -d -T 0 {} +
    rm -rf "$cache"
    mv "$work/wanted" "$cache"
    chmod 755 "$cache"
)

# Programs whose packages would change the machine, so that only the program is extracted: prometheus would start a server
# at each boot (tests start it themselves, and promtool checks files), so would openssh-server and snmpd, chrony would replace the
# machine's time daemon, and kubernetes-client a newer kubectl. freeradius, nfdump and Slurm, which would start servers too, are more than
# one program: all files of their packages are extracted.
prometheus=$caches/prometheus
promtool=$caches/promtool
kubectl=$caches/kubectl
sshd=$caches/sshd
chronyd=$caches/chronyd
snmpd=$caches/snmpd
freeradius=$caches/freeradius
nfdump=$caches/nfdump
slurm=$caches/slurm
musl=$caches/musl-aarch64

# Extracts the file $2 of the package $1 as $3.
fetch_program() (
    echo "setup: unpacking $(basename "$3") into $(dirname "$3")" >&2
    mkdir -p "$(dirname "$3")"
    work=$(mktemp -d "$3.XXXXXX")
    trap "rm -rf '$work'" EXIT
    cd "$work"
    apt-get download -qq -o APT::Sandbox::User=root "$1" >/dev/null
    dpkg-deb -x "$1"_*.deb all
    mv "all/$2" "$3"
)

# fetch_packages FOLDER PACKAGE...: extracts the packages into the folder.
fetch_packages() (
    folder=$1
    shift
    echo "setup: unpacking $* into $folder" >&2
    mkdir -p "$(dirname "$folder")"
    work=$(mktemp -d "$folder.XXXXXX")
    trap "rm -rf '$work'" EXIT
    cd "$work"
    apt-get download -qq -o APT::Sandbox::User=root "$@" >/dev/null
    for package in *.deb; do
        dpkg-deb -x "$package" all
    done
    rm -rf "$folder"
    mv all "$folder"
    chmod 755 "$folder"
)

# Extracts musl's headers for another architecture, whose packages apt here does not know.
fetch_musl() {
    echo "setup: unpacking musl-dev into $musl" >&2
    mmdebstrap --quiet --architecture=arm64 --variant=extract --include=musl-dev bookworm "$musl.new.tar" < /dev/null
    rm -rf "$musl.new"
    mkdir -m 755 "$musl.new"
    tar -C "$musl.new" --strip-components=4 -xf "$musl.new.tar" ./usr/include/aarch64-linux-musl
    rm "$musl.new.tar"
    mv "$musl.new" "$musl"
}

fetch_prometheus() { fetch_program prometheus usr/bin/prometheus "$prometheus"; }
fetch_promtool() { fetch_program prometheus usr/bin/promtool "$promtool"; }
fetch_kubectl() { fetch_program kubernetes-client usr/bin/kubectl "$kubectl"; }
fetch_sshd() { fetch_program openssh-server usr/sbin/sshd "$sshd"; }
fetch_chronyd() { fetch_program chrony usr/sbin/chronyd "$chronyd"; }
fetch_snmpd() { fetch_program snmpd usr/sbin/snmpd "$snmpd"; }
fetch_freeradius() { fetch_packages "$freeradius" freeradius; }
fetch_nfdump() { fetch_packages "$nfdump" nfdump; }
# With the library that only they need.
fetch_slurm() { fetch_packages "$slurm" slurmctld slurmd slurm-client slurm-wlm-basic-plugins libhwloc15; }

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
unpack=()
if [ "$level" != build ]; then
    while read -r name _; do
        [ -z "$name" ] || [ -d "$caches/$name" ] || unpack+=("$name")
    done <<< "$kernels"
    [ -x "$prometheus" ] || unpack+=(prometheus)
    [ -x "$promtool" ] || unpack+=(promtool)
    [ -x "$kubectl" ] || unpack+=(kubectl)
    [ -x "$sshd" ] || unpack+=(sshd)
    [ -x "$chronyd" ] || unpack+=(chronyd)
    [ -x "$snmpd" ] || unpack+=(snmpd)
    [ -x "$freeradius/usr/sbin/freeradius" ] || unpack+=(freeradius)
    [ -x "$nfdump/usr/bin/nfcapd" ] || unpack+=(nfdump)
    [ -x "$slurm/usr/bin/srun" ] || unpack+=(slurm)
fi

if [ "$level" = dist ]; then
    [ -d "$musl" ] || unpack+=(musl)
fi

if [ ${#missing[@]} -eq 0 ] && [ ${#unpack[@]} -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    absent=("${missing[@]}" "${unpack[@]}")
    echo "setup: missing: ${absent[*]}; run as root: scripts/setup.sh $level" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
if ! apt-get update -qq; then
    absent=("${missing[@]}" "${unpack[@]}")
    echo "setup: missing: ${absent[*]}; apt's sources cannot be read" >&2
    exit 1
fi
if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}" >&2
    # Installing a server must not start it: the tests start their own, in their own namespaces.
    RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
for name in "${unpack[@]}"; do
    case $name in
        prometheus) fetch_prometheus ;;
        promtool) fetch_promtool ;;
        kubectl) fetch_kubectl ;;
        sshd) fetch_sshd ;;
        chronyd) fetch_chronyd ;;
        freeradius) fetch_freeradius ;;
        nfdump) fetch_nfdump ;;
        slurm) fetch_slurm ;;
        snmpd) fetch_snmpd ;;
        musl) fetch_musl ;;
        # shellcheck disable=SC2046
        *) fetch_kernel $(grep "^$name " <<< "$kernels") ;;
    esac
done
