#!/usr/bin/env bash
# scripts/check-packages.sh [--build]: whether each published crate can be packaged for a registry: with what cargo demands of its
# manifest, and versions for all dependencies. --build also builds each from its package, as an installation would: no file from
# outside of it. Without a network: what the workspace needs has been fetched before.
set -euo pipefail
cd "$(dirname "$0")/.."

how=(--no-verify)
case "${1:-}" in
    --build) how=() ;;
    '') ;;
    *) echo "check-packages: \"$1\" is not an option; expected --build or nothing" >&2; exit 2 ;;
esac
# Cargo packages members that are not published as well, and fails for those that others use without a version.
while IFS= read -r manifest; do
    if grep -q '^publish = false' "$manifest"; then
        how+=(--exclude "$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)")
    fi
done < <(git ls-files 'benches/Cargo.toml' 'crates/*/Cargo.toml' 'fuzz/bodies/Cargo.toml' 'tests/Cargo.toml' 'tests/rig/Cargo.toml')

said=$(mktemp)
trap 'rm -f "$said"' EXIT
if ! cargo package --workspace "${how[@]}" --locked --offline --allow-dirty > "$said" 2>&1; then
    cat "$said" >&2
    exit 1
fi
# A manifest without description, licence or repository is only warned about.
if grep -A 1 'manifest has no' "$said" >&2; then
    echo "check-packages: manifests lack what a registry shows, see above" >&2
    exit 1
fi
echo "check-packages: $(grep -c '^ *Packaged ' "$said") crates${1:+, each built from its package}"
