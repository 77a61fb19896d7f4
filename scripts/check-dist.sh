#!/usr/bin/env bash
# scripts/check-dist.sh [--twice]: whether what scripts/dist.sh made is sound. Needs root; some minutes.
#
#   package   lintian finds nothing; in a new Debian 12: installs, runs, upgrades with a changed configuration, is removed and
#             purged, and leaves no file; applied settings stay, and so does their journal
#   program   the static one runs in an empty root, that of aarch64 under qemu; all are below 20 MiB; those of this machine start and
#             exit in less than 20 ms
#   image     crun runs `udpath show` in it
#   crates    each is built from its package, as from a registry
#   --twice   a second build in another folder is byte-equal
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$PWD/out/dist
export LC_ALL=C

failed() { echo "check-dist: $*" >&2; exit 1; }
passed() { printf '%-10s %s\n' "$1" "$2"; }

package=$(ls "$dist"/udpath_*.deb 2>/dev/null) || failed "out/dist has no package; run make dist first"
archive=$(ls "$dist"/udpath-*-"$(uname -m)"-linux-musl.tar.gz)
foreign=$(ls "$dist"/udpath-*-aarch64-linux-musl.tar.gz 2>/dev/null || true)
image=$(ls "$dist"/udpath-*-oci.tar)
(cd "$dist" && sha256sum --check --quiet SHA256SUMS)

work=$(mktemp -d)
# Mounts are in namespaces of the commands below, which end with them.
trap 'rm -rf "$work"' EXIT

lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$package" || failed "lintian, see above"
passed lintian "no error, no warning"

# A Debian 12 as debootstrap makes it, kept for the next run.
base=/var/cache/udpath/debian-12.tar
if [ ! -e $base ]; then
    echo "check-dist: making a Debian 12 in $base" >&2
    mmdebstrap --quiet --variant=apt --include=systemd bookworm "${base%.tar}.new.tar" < /dev/null
    mv "${base%.tar}.new.tar" "$base"
fi
root=$work/root
mkdir "$root"
tar -C "$root" -xf "$base"
# in_root COMMAND...: in namespaces of its own, with /proc, /sys and /run.
in_root() {
    unshare --mount --pid --fork --uts --ipc -- sh -ec '
        root=$1; shift
        mount -t proc proc "$root/proc"; mount -t sysfs sys "$root/sys"; mount -t tmpfs run "$root/run"
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"
    ' sh "$root" "$@"
}
# apt COMMAND...: in that Debian; what it prints is shown if it fails.
apt() {
    in_root apt-get -qq -y --no-install-recommends "$@" > "$work/said" 2>&1 || failed "apt-get $*: $(cat "$work/said")"
}
# Every file, without what dpkg, apt and adduser write about themselves.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./run -o -path ./tmp -o -path ./var/lib/dpkg \
        -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log \) -prune -o -print | sort)
}

# The version before: the same files under a lower number.
dpkg-deb -R "$package" "$work/old"
sed -i 's/^Version: .*/Version: 0.0.1-1/' "$work/old/DEBIAN/control"
dpkg-deb -b "$work/old" "$root/old.deb" >/dev/null
cp "$package" "$root/new.deb"

before=$(files)
apt install /old.deb
in_root udpath --version > /dev/null
echo 'ARGS="--listen 127.0.0.1:9454"' >> "$root/etc/default/udpath-export"
mkdir -p "$root/var/lib/udpath/journal"
printf '%s\n' '{"begun":{}}' '"applied"' > "$root/var/lib/udpath/journal/000001.journal"
apt install -o Dpkg::Options::=--force-confdef /new.deb
grep -q 9454 "$root/etc/default/udpath-export" || failed "the upgrade lost a change of /etc/default/udpath-export"
[ "$(in_root dpkg-query -W -f '${Version}' udpath)" = "$(dpkg-deb -f "$package" Version)" ] || failed "not upgraded"
in_root udpath show > "$work/shown" || [ $? -eq 1 ] || failed "udpath show in the new Debian"
grep -q UDP "$work/shown" || failed "udpath show prints no UDP stage"
in_root sh -c 'zcat /usr/share/man/man1/udpath-show.1.gz' | grep -q '^.TH udpath-show 1' || failed "no man page"
[ -z "$(find "$root/etc/systemd" -name 'udpath*')" ] || failed "the installation enabled a unit"
passed install "udpath show runs; the upgrade keeps a changed configuration; no unit is enabled"

apt purge udpath
grep -q 'stays: its journal' "$work/said" || failed "purged with applied settings without a word: $(cat "$work/said")"
[ -e "$root/var/lib/udpath/journal/000001.journal" ] || failed "purge removed the journal of applied settings"
apt install /new.deb
echo '"undone"' >> "$root/var/lib/udpath/journal/000001.journal"
apt purge udpath
left=$(comm -13 <(echo "$before") <(files))
[ -z "$left" ] || failed "purge leaves: $left"
[ -z "$(in_root getent passwd udpath || true)" ] || failed "purge leaves the user udpath"
passed purge "keeps the journal of applied settings, and nothing otherwise"

mkdir "$work/static" "$work/empty"
tar -C "$work/static" --strip-components=1 -xf "$archive"
static=$work/static/udpath
cp "$static" "$work/empty/"
chroot "$work/empty" /udpath --version >/dev/null || failed "the static program does not run in an empty root"
passed static "runs in an empty root"
programs=("$static" "$work/old/usr/bin/udpath")
if [ "$(uname -m)" = x86_64 ] && [ -n "$foreign" ]; then
    mkdir "$work/aarch64"
    tar -C "$work/aarch64" --strip-components=1 -xf "$foreign"
    programs+=("$work/aarch64/udpath")
    qemu-aarch64-static "$work/aarch64/udpath" show > "$work/shown" || [ $? -eq 1 ] || failed "udpath show for aarch64"
    grep -q UDP "$work/shown" || failed "udpath show for aarch64 prints no UDP stage"
    passed aarch64 "qemu runs udpath show"
fi
for program in "${programs[@]}"; do
    size=$(stat -c %s "$program")
    [ "$size" -lt $((20 << 20)) ] || failed "$program has $size bytes; 20 MiB were asked"
    passed size "$((size >> 10)) KiB: ${program#"$work/"}"
done

# Median of as many starts as `make bench BENCH=start` takes. Printed, not required: other programs may run on this machine.
for program in "${programs[@]:0:2}"; do
    took=$(for _ in $(seq 101); do
        begin=${EPOCHREALTIME/./}
        "$program" --version > /dev/null
        echo $((${EPOCHREALTIME/./} - begin))
    done | sort -n | sed -n 51p)
    [ "$took" -lt 20000 ] && verdict=held || verdict=missed
    passed start "$((took / 1000)).$(printf %03d $((took % 1000))) ms, < 20 ms $verdict: ${program#"$work/"}"
done

container=$(buildah --storage-driver vfs from --quiet "oci-archive:$image")
trap 'buildah --storage-driver vfs rm "$container" >/dev/null; rm -rf "$work"' EXIT
mkdir "$work/bundle"
ln -s "$(buildah --storage-driver vfs mount "$container")" "$work/bundle/rootfs"
(
    cd "$work/bundle"
    crun spec
    # The arguments of the image, without a terminal.
    python3 - <<'END'
import json
spec = json.load(open("config.json"))
spec["process"]["args"] = ["/usr/bin/udpath", "show"]
spec["process"]["terminal"] = False
json.dump(spec, open("config.json", "w"))
END
    # crun wants cgroup2 alone; this machine may have version 1 beside it.
    unshare --mount sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec crun --cgroup-manager=disabled run "udpath-check-$$"' \
        > "$work/shown" || [ $? -eq 1 ]
) || failed "crun cannot run the image"
grep -q UDP "$work/shown" || failed "udpath show in the image prints no UDP stage"
passed image "crun runs udpath show"

passed crates "$(scripts/check-packages.sh --build)"

if [ "${1:-}" = --twice ]; then
    git clone --quiet . "$work/clone"
    (cd "$work/clone" && mkdir -p target && cp -r "$OLDPWD/target/tools" target/ && bash scripts/dist.sh >/dev/null)
    diff "$dist/SHA256SUMS" "$work/clone/out/dist/SHA256SUMS" || failed "a build in another folder differs"
    passed twice "a build in another folder is byte-equal"
fi
