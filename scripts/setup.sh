#!/usr/bin/env bash
# Installs the Debian packages that building, testing and the demo need and that are missing, and says which.
# Also unpacks the kernel that `udpath lab vm` boots, and promtool, below /var/cache/udpath: neither is installed.
# Nothing else is changed; with everything there it only looks. Needs root only if something is missing.
# `setup.sh bench` adds what only `make bench` needs.
set -euo pipefail

# What for                          package
wanted=(
    # builds the BPF programs and the C baseline
    clang llvm libbpf-dev linux-libc-dev gcc libc6-dev make
    # looks at what the lab made, in tests
    iproute2 ethtool procps util-linux
    # real peers of the tests and benchmarks
    socat netcat-openbsd dnsperf nsd knot knot-dnsutils irqbalance
    # emulates a machine with several nodes and many queues
    qemu-system-x86 busybox-static xz-utils
    # read the files that keep settings over a boot, in tests
    systemd udev
    # make the rules that a snapshot must show, and that `serve --io xdp` must name
    nftables iptables
    # samples the same interval, and looks on, in tests of the profile
    linux-perf tcpdump
    # a terminal to draw on, in tests
    tmux
    # opens the HTML report as a reader would
    chromium
)
# A large one, and no test needs it: DPDK's testpmd with its drivers, a baseline of `make bench`.
case "${1:-}" in
    "") ;;
    bench) wanted+=(dpdk-dev) ;;
    *) echo "setup: '$1' is not known; say nothing, or bench" >&2; exit 2 ;;
esac

# Debian 12's newest kernel: it tells of queues and NAPI over netlink, which 6.1 does not.
kernel=linux-image-6.12-amd64
# One download for all checkouts of a machine, where it may be removed at any time.
cache=/var/cache/udpath/kernel

# Unpacks what the emulated machine needs of the kernel package, its modules as they are loaded, and then moves it to
# its place, so that half of it is never there.
fetch_kernel() {
    local package work tree
    package=$(apt-cache depends "$kernel" | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p')
    if [ -z "$package" ]; then
        echo "setup: there is no package $kernel; are the security updates of Debian 12 among apt's sources?" >&2
        return 1
    fi
    echo "setup: unpacking $package into $cache" >&2
    mkdir -p "$(dirname "$cache")"
    work=$(mktemp -d "$cache.XXXXXX")
    # The package is removed with its folder, whatever happens.
    trap "rm -rf '$work'" EXIT
    (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package" >/dev/null)
    dpkg-deb -x "$work/$package"_*.deb "$work/all"
    tree=$(cd "$work/all" && echo lib/modules/*)
    mkdir -p "$work/wanted/boot" "$work/wanted/$tree/kernel/drivers"
    mv "$work"/all/boot/vmlinuz-* "$work/wanted/boot/"
    mv "$work/all/$tree/modules.builtin" "$work/wanted/$tree/"
    mv "$work/all/$tree"/kernel/{crypto,fs,lib,net} "$work/wanted/$tree/kernel/"
    mv "$work/all/$tree"/kernel/drivers/{char,net,virtio} "$work/wanted/$tree/kernel/drivers/"
    find "$work/wanted" -name '*.ko.xz' -exec xz -d -T 0 {} +
    rm -rf "$cache"
    mv "$work/wanted" "$cache"
    chmod 755 "$cache"
}

# Checks what is for Prometheus, in tests. Its package would start a server at each boot, so that one program is taken out.
promtool=/var/cache/udpath/promtool

fetch_promtool() (
    echo "setup: unpacking promtool into $(dirname "$promtool")" >&2
    mkdir -p "$(dirname "$promtool")"
    work=$(mktemp -d "$promtool.XXXXXX")
    trap "rm -rf '$work'" EXIT
    cd "$work"
    apt-get download -qq -o APT::Sandbox::User=root prometheus >/dev/null
    dpkg-deb -x prometheus_*.deb all
    mv all/usr/bin/promtool "$promtool"
)

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done

if [ ${#missing[@]} -eq 0 ] && [ -d "$cache" ] && [ -x "$promtool" ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "setup: not root, and something is missing (${missing[*]:-$cache or $promtool}); run: sudo scripts/setup.sh" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}" >&2
    # Installing a server must not start it: the tests start their own, in their own namespaces.
    RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ ! -d "$cache" ]; then
    fetch_kernel
fi
if [ ! -x "$promtool" ]; then
    fetch_promtool
fi
