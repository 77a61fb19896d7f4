#!/usr/bin/env bash
# Takes every capture that is a fixture again, and puts it in its place: of the emulated machine (tests/tests/vm), of a recording
# by perf, and of this machine. Needs root. Afterwards `git diff --stat` shows what is new; the tests say what no longer reads
# as it did.
#
#     scripts/captures.sh                  everything
#     scripts/captures.sh vm               one of: vm, rings, here
#
# A capture of this machine is taken in a PID namespace of its own, so that it shows no process of whoever takes it.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh="target.'cfg(all())'.runner = '$PWD/scripts/fresh-root.sh'"
export UDPATH_REQUIRE_ALL=1
captured=crates/host/tests/fixtures/captured

from_vm() {
    cargo test -p udpath-tests --locked --config "$fresh" --test vm -- --exact its_proc_and_sys_are_a_source
    local from=target/tmp/machine-20-cpus-16-queues netlink=crates/netlink/fixtures/emulated
    mkdir -p "$netlink" $captured
    cp "$from/generic.netlink" "$from/route.netlink" "$netlink/"
    cp "$from/steps/as-ethtool.out" "$netlink/ethtool.txt"
    cp "$from/support.tar.gz" $captured/emulated-20-cpus.tar.gz
}

from_rings() {
    cargo test -p udpath-tests --locked --config "$fresh" --test alone -- --exact profile::recording::what_this_kernel_writes_is_understood
    cp target/tmp/rings/{ring,kallsyms,datagrams,expected} crates/profile/tests/rings/real/
}

# Named after the hypervisor and the number of CPUs; another machine's file needs its own test in crates/host/tests/it/real.rs.
from_here() {
    cargo build --locked --quiet
    mkdir -p $captured
    unshare --pid --fork --mount-proc target/debug/udpath support --force -o "$captured/firecracker-$(nproc)-cpus.tar.gz"
}

what=("$@")
[ ${#what[@]} -gt 0 ] || what=(vm rings here)
for one in "${what[@]}"; do
    case $one in
        vm | rings | here) "from_$one" ;;
        *) echo "captures: \"$one\" is none of vm, rings, here" >&2; exit 2 ;;
    esac
done
