#!/usr/bin/env bash
# Runs a command as on a freshly installed machine: files that earlier runs left in /run, /tmp, /var and /etc are
# hidden, and files that the command creates there disappear when it exits.
#
#     scripts/fresh-root.sh target/debug/deps/it-0123456789abcdef
#     cargo test --config "target.'cfg(all())'.runner = '$PWD/scripts/fresh-root.sh'"    each test binary in its own
#
# So a test that relies on something an earlier run created (a directory in /run, a cache) fails here as it would on a
# new machine. The directories are mounts in a private namespace: nothing has to be cleaned up, even after SIGKILL.
# Needs root; the exit code is the command's.
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: fresh-root.sh COMMAND [ARGUMENT]..." >&2
    exit 2
fi
if [ "${UDPATH_FRESH_ROOT:-}" != inside ]; then
    # Private: the host sees none of the mounts below.
    exec unshare --mount --propagation private -- env UDPATH_FRESH_ROOT=inside "${BASH_SOURCE[0]}" "$@"
fi
unset UDPATH_FRESH_ROOT

# On a new machine, these contain nothing that a test may rely on.
empty=(/run /tmp /var/tmp /dev/shm /var/lib /var/cache)
# These contain only files shipped by packages.
shipped=(/etc/udev /etc/sysctl.d /etc/systemd /etc/udpath)
packages=(udev systemd procps)
# Still visible below those: the package state, the kernel and promtool unpacked by scripts/setup.sh, this
# repository, and the command's own directory (rustdoc builds doc tests below /tmp) and results.
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
keep=(/var/lib/dpkg /var/lib/apt /var/cache/apt /var/cache/udpath "$repository" "$PWD" "${UDPATH_SOAK:-}")
case $1 in
    # A cargo test binary: the target directory, which may be outside the repository, has the program and room for
    # files.
    */deps/*) keep+=("$(dirname "$1")/../..") ;;
    */*) keep+=("$(dirname "$1")") ;;
esac

# Paths within a hidden directory are reached through descriptors opened earlier.
declare -A kept originals
for path in "${keep[@]}"; do
    [ -e "$path" ] || continue
    path=$(realpath "$path")
    for folder in "${empty[@]}"; do
        case $path in
            "$folder"/*) exec {fd}<"$path"; kept[$path]=$fd ;;
            "$folder") echo "fresh-root: $path cannot be both emptied and kept; run from another folder" >&2; exit 3 ;;
        esac
    done
done
for folder in "${shipped[@]}"; do
    [ ! -d "$folder" ] || { exec {fd}<"$folder"; originals[$folder]=$fd; }
done

for folder in "${empty[@]}" "${!originals[@]}"; do
    [ -d "$folder" ] || continue
    mount -n -t tmpfs -o "mode=$(stat -c %a "$folder"),nosuid,nodev" fresh-root "$folder"
done
# What is pinned there is gone with the command.
[ ! -d /sys/fs/bpf ] || mount -n -t bpf fresh-root /sys/fs/bpf
# Debian's /var/lock is a link to it.
mkdir -m 1777 /run/lock

for path in "${!kept[@]}"; do
    original=/proc/self/fd/${kept[$path]}
    if [ -d "$original" ]; then
        mkdir -p "$path"
    else
        mkdir -p "$(dirname "$path")"
        : > "$path"
    fi
    # -c: mount(8) would resolve the link to the path, which is hidden by now.
    mount -n -c --bind "$original" "$path"
done
for folder in "${!originals[@]}"; do
    original=/proc/self/fd/${originals[$folder]}
    lists=("${packages[@]/#//var/lib/dpkg/info/}")
    { grep -hs "^$folder/" "${lists[@]/%/.list}" || true; } | sort | while IFS= read -r path; do
        file=$original${path#"$folder"}
        if [ -d "$file" ] && [ ! -L "$file" ]; then
            mkdir -p "$path"
        elif [ -e "$file" ]; then
            cp -aT "$file" "$path"
        fi
    done
done
for fd in "${kept[@]}" "${originals[@]}"; do
    exec {fd}<&-
done
# A test binary that uses the standard harness also prints the time of each test (scripts/times.sh), which its stable version does
# when it is told that it is being bootstrapped.
case $1 in
    */deps/*) ! grep -qsF report-time "$1" || { export RUSTC_BOOTSTRAP=1; set -- "$@" -Zunstable-options --report-time; } ;;
esac
# Below nohup(1), SIGHUP would be ignored by all that tests start, and what they end with it would never end.
exec env --default-signal=HUP "$@"
