#!/usr/bin/env bash
# Installs the Debian packages that building, testing and the demo need and that are missing, and says which.
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
    socat netcat-openbsd dnsperf nsd knot-dnsutils
    # opens the HTML report as a reader would
    chromium
)
# A large one, and no test needs it: DPDK's testpmd with its drivers, a baseline of `make bench`.
case "${1:-}" in
    "") ;;
    bench) wanted+=(dpdk-dev) ;;
    *) echo "setup: '$1' is not known; say nothing, or bench" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done

if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
echo "setup: installing ${missing[*]}" >&2
if [ "$(id -u)" -ne 0 ]; then
    echo "setup: not root; run: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# Installing a server must not start it: the tests start their own, in their own namespaces.
apt-get update -qq
RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
