#!/usr/bin/env bash
# scripts/dist.sh: what is published of a version, in out/dist:
#
#   udpath_VERSION-1_ARCH.deb              for Debian 12 and later: program, man pages, completions, units, docs
#   udpath-VERSION-ARCH-linux-musl.tar.gz  one static program for any Linux, man pages, completions; on x86-64 also for aarch64
#   udpath-VERSION-ARCH-oci.tar            a container image with that program alone
#   udpath-VERSION.cdx.json                what they consist of (CycloneDX)
#   SHA256SUMS
#
# Two builds of one commit from two folders are byte-equal: no file names the folder, the user or the time; every date is that
# of the commit. scripts/check-dist.sh installs, upgrades, runs and removes what is made here.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
arch=$(uname -m)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
UDPATH_COMMIT=$(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD || echo +)
export SOURCE_DATE_EPOCH UDPATH_COMMIT LC_ALL=C TZ=UTC
umask 022

tools=$PWD/target/tools
# tool NAME VERSION: built once, like those of scripts/deny.sh.
tool() {
    [ "$("$tools/bin/$1" "${1#cargo-}" --version 2>/dev/null | grep -o "$2")" = "$2" ] && return
    echo "dist: building $1 $2" >&2
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
        cargo install "$1" --version "=$2" --locked --quiet --root "$tools" --target-dir "$tools/build"
}
tool cargo-deb 3.8.0
tool cargo-cyclonedx 0.5.9

# C for another architecture: its compiler with musl's headers, which scripts/setup.sh unpacks.
headers=/var/cache/udpath/musl-aarch64
if [ "$arch" = x86_64 ]; then
    export CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc AR_aarch64_unknown_linux_musl=aarch64-linux-gnu-ar
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-gnu-gcc
    CFLAGS_aarch64_unknown_linux_musl="-nostdinc -isystem $headers -isystem $(aarch64-linux-gnu-gcc -print-file-name=include)"
fi
# build TRIPLE: the program. The folders are replaced in panic messages, and C is compiled without them. Flags for the target
# alone, so that build scripts are not built twice.
build() {
    local rust="--remap-path-prefix=$PWD=/udpath --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    local c="-ffile-prefix-map=$PWD=/udpath -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    [ "$1" = "$arch-unknown-linux-gnu" ] || rust+=" -Ctarget-feature=+crt-static"
    CFLAGS=$c CFLAGS_aarch64_unknown_linux_musl="${CFLAGS_aarch64_unknown_linux_musl:-} $c" RUSTFLAGS=$rust \
        cargo build --profile dist --locked --quiet -p udpath --target "$1"
}
# packed FILE FOLDER NAME: NAME in FOLDER as a tar file, the same for the same contents.
packed() {
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --pax-option=delete=atime,delete=ctime \
        -C "$2" -cf - "$3" | gzip -9 -n > "$1"
}

out=$PWD/out/dist
rm -rf "$out"
mkdir -p "$out/files/completions"

echo "dist: building udpath $version ($UDPATH_COMMIT)" >&2
build "$arch-unknown-linux-gnu"
program=target/$arch-unknown-linux-gnu/dist/udpath
"$program" man "$out/files/man"
"$program" completions bash > "$out/files/completions/udpath.bash"
"$program" completions zsh > "$out/files/completions/_udpath"
"$program" completions fish > "$out/files/completions/udpath.fish"
gzip -9 -n -c CHANGELOG.md > "$out/files/changelog.gz"
cat > "$out/files/changelog" <<END
udpath ($version-1) stable; urgency=medium

  * Version $version; what is new is in /usr/share/doc/udpath/changelog.gz.

 -- The udpath developers <udpath@users.noreply.github.com>  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
find "$out/files" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
"$tools/bin/cargo-deb" deb -p udpath --profile dist --target "$arch-unknown-linux-gnu" --no-build --no-strip --deb-revision 1 \
    --quiet --output "$out/" >&2

# Whether Rust's part for static programs of an architecture can be had.
has_rust_for() {
    local triple=$1-unknown-linux-musl
    [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ] || rustup target add "$triple" >&2 && return
    echo "dist: no static program for $1: the Rust target $triple is missing (rustup target add $triple)" >&2
    return 1
}
# static ARCH: the static program of an architecture, in its archive.
static() {
    local triple=$1-unknown-linux-musl name=udpath-$version-$1-linux-musl
    build "$triple"
    mkdir "$out/$name"
    cp "target/$triple/dist/udpath" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$out/$name/"
    cp -r "$out/files/man" "$out/files/completions" deploy "$out/$name/"
    packed "$out/$name.tar.gz" "$out" "$name"
    rm -r "${out:?}/$name"
}
if has_rust_for "$arch"; then
    static "$arch"
    # From nothing: no shell, no package, no network.
    image=$(buildah --storage-driver vfs from scratch)
    buildah --storage-driver vfs copy --quiet "$image" "target/$arch-unknown-linux-musl/dist/udpath" /usr/bin/udpath >/dev/null
    buildah --storage-driver vfs config --entrypoint '["/usr/bin/udpath"]' --cmd show --created-by udpath "$image"
    buildah --storage-driver vfs commit --quiet --rm --timestamp "$SOURCE_DATE_EPOCH" "$image" \
        "oci-archive:$out/udpath-$version-$arch-oci.tar:udpath:$version" >/dev/null
fi
if [ "$arch" = x86_64 ] && has_rust_for aarch64; then
    static aarch64
fi

# It writes one for each crate of the workspace.
(cd crates/cli && "$tools/bin/cargo-cyclonedx" cyclonedx --format json --override-filename udpath-sbom --quiet)
# Without its serial number, which is random.
sed '/"serialNumber"/d' crates/cli/udpath-sbom.json > "$out/udpath-$version.cdx.json"
find . -path ./target -prune -o -name udpath-sbom.json -exec rm {} +

rm -r "$out/files"
(cd "$out" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
