#!/usr/bin/env bash
# Fetches the test suites of BIND, Knot and NSD into a folder, or prints why it cannot. Nothing of them is part of this repository: their zones
# are what `serve dns` is compared with (crates/protocols/src/dns/zone/tests/peers.rs).
#
#     scripts/peers.sh target/peers
set -euo pipefail

folder=${1:?usage: peers.sh FOLDER}
# Each at a fixed commit: counts of two runs are of the same files.
peers=(
    "isc-projects/bind9 bf74540dfe23bcb77afa62f65d1a290535435747"
    "CZ-NIC/knot 242eeaa135f1f4477169c663aa8bd4578009f122"
    "NLnetLabs/nsd 6ed8470be5f88a63676110012fc38b19fb35b425"
)
for peer in "${peers[@]}"; do
    read -r name commit <<< "$peer"
    copy=$folder/${name#*/}
    [ -e "$copy/.complete" ] && continue
    rm -rf "$copy"
    git init --quiet "$copy"
    git -C "$copy" fetch --quiet --depth 1 "https://github.com/$name" "$commit"
    git -C "$copy" checkout --quiet FETCH_HEAD
    touch "$copy/.complete"
done
