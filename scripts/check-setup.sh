#!/usr/bin/env bash
# Runs scripts/setup.sh as on a new machine: nothing installed, nothing below /var/cache, and no network. apt and dpkg are
# stand-ins that hand out small packages of the real ones' shape. Run it by scripts/fresh-root.sh: it covers /var/cache.
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

# package NAME VERSION: what stands in for it, from the folder $work/NAME.
package() {
    mkdir -p "$work/$1/DEBIAN"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: test\n' \
        "$1" "$2" > "$work/$1/DEBIAN/control"
    dpkg-deb --build "$work/$1" "$packages/$1_$2_all.deb" >/dev/null
}
image=linux-image-6.12.99-amd64
modules=$work/$image/lib/modules/6.12.99
mkdir -p "$work/$image/boot" "$modules"/kernel/{crypto,fs,lib,net,sound} "$modules"/kernel/drivers/{char,net,virtio,gpu}
echo kernel > "$work/$image/boot/vmlinuz-6.12.99"
echo kernel/fs/ext4.ko > "$modules/modules.builtin"
echo module | xz > "$modules/kernel/net/udp_diag.ko.xz"
package "$image" 6.12.99-1
mkdir -p "$work/prometheus/usr/bin"
printf '#!/bin/sh\n' > "$work/prometheus/usr/bin/promtool"
chmod 755 "$work/prometheus/usr/bin/promtool"
package prometheus 2.42.0

cat > "$work/bin/apt-get" <<'STUB'
#!/bin/sh
echo "apt-get $*" >> "$log"
case $1 in
    update) ;;
    install) for name; do touch "$packages/$name.installed"; done ;;
    download) for name; do :; done; cp "$packages/$name"_*.deb . ;;
    *) exit 100 ;;
esac
STUB
cat > "$work/bin/apt-cache" <<STUB
#!/bin/sh
echo "  Depends: $image"
STUB
cat > "$work/bin/dpkg-query" <<'STUB'
#!/bin/sh
for name; do :; done
[ -e "$packages/$name.installed" ] || exit 1
echo installed
STUB
chmod 755 "$work"/bin/*

# Without root and with something missing: one sentence, and nothing is changed.
# The repository may be closed to others.
cp scripts/setup.sh "$work/setup.sh"
chmod 755 "$work" "$work/setup.sh"
said=$(cd / && setpriv --reuid 65534 --regid 65534 --clear-groups "$work/setup.sh" 2>&1) && fail "a user without root installs"
case $said in "setup: not root"*clang*) ;; *) fail "a user without root is told: $said" ;; esac
[ ! -s "$log" ] && [ ! -e /var/cache/udpath ] || fail "a user without root changes something"

(umask 077 && scripts/setup.sh) 2>"$work/said" || fail "exit $?: $(cat "$work/said")"
grep -q '^apt-get update' "$log" || fail "installs without an update of the lists: $(cat "$log")"
for name in clang iproute2 qemu-system-x86 nsd; do
    grep -q "^apt-get install.* $name\b" "$log" || fail "does not install $name: $(cat "$log")"
done
cd /var/cache/udpath
[ "$(cat kernel/boot/vmlinuz-*)" = kernel ] || fail "no kernel in $(pwd)"
[ "$(cat kernel/lib/modules/*/kernel/net/udp_diag.ko)" = module ] || fail "modules are not unpacked as they are loaded"
[ -x promtool ] || fail "no promtool in $(pwd)"
[ "$(stat -c %a kernel)" = 755 ] || fail "the kernel's folder is closed to others"
[ "$(echo *)" = "kernel promtool" ] || fail "leaves behind: $(echo *)"
cd - >/dev/null

# With everything there it only looks.
: > "$log"
said=$(scripts/setup.sh 2>&1) || fail "the second run: exit $?"
[ -z "$said" ] && [ ! -s "$log" ] || fail "the second run is not silent: $said $(cat "$log")"
rm -rf "$work"
