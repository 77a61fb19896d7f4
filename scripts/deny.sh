#!/usr/bin/env bash
# Checks every dependency by deny.toml: licences, bans, sources and known vulnerabilities (RustSec).
#
#     scripts/deny.sh
#
# cargo-deny is built first if this version is missing: 100 s of CPU time, once per machine. Its checks take three. Without access
# to the crates' registry there is no cargo-deny: a line says so, and with UDPATH_REQUIRE_ALL=1, as in CI, that fails.
#
# Vulnerabilities need the database of github.com/rustsec/advisory-db, which not every machine reaches: without it, and without an
# earlier copy, a line says that they were not checked.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
# One build for all checkouts of a machine.
tools=/var/cache/udpath/tools
mkdir -p "$tools" 2>/dev/null && [ -w "$tools" ] || tools=${XDG_CACHE_HOME:-$HOME/.cache}/udpath/tools
export PATH=$tools/bin:$PATH

spent=$(mktemp)
trap 'rm -f "$spent"' EXIT
# Sets $seconds to the CPU time of the programs that have ended: the second line of `times`, such as 1m2.345s 0m6.789s. Called in
# this shell: a subshell would count its own.
cpu() {
    times > "$spent"
    seconds=$(awk 'NR == 2 { gsub(/s/, ""); split($1, user, "m"); split($2, kernel, "m")
        print int(60 * (user[1] + kernel[1]) + user[2] + kernel[2]) }' "$spent")
}

built=
if [ "$(cargo deny --version 2>/dev/null)" != "cargo-deny $version" ]; then
    echo "deny: building cargo-deny $version into $tools, once: 100 s of CPU time" >&2
    # Unoptimised: the build takes a fifth of the time, and a check takes seconds all the same.
    if ! CARGO_PROFILE_DEV_DEBUG=none cargo install cargo-deny --version "$version" --locked --quiet --debug --root "$tools"; then
        echo "deny: nothing was checked: cargo-deny $version cannot be installed" >&2
        [ -z "${UDPATH_REQUIRE_ALL:-}" ] || exit 1
        exit 0
    fi
    cpu
    built=$seconds
fi

cargo deny --locked --log-level error check --hide-inclusion-graph bans licenses sources
unchecked=
# `cargo deny fetch` keeps what it fetches there; an earlier copy serves for as long as cargo-deny takes it (90 days).
copies=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
if ! said=$(timeout 120 cargo deny --locked fetch db 2>&1); then
    echo "deny: cannot fetch the RustSec database: $(tail -n 1 <<< "$said")" >&2
    [ -n "$(find "$copies" -name 'RUSTSEC-*.md' -print -quit 2>/dev/null)" ] || unchecked=yes
fi
if [ -z "$unchecked" ]; then
    cargo deny --locked --offline --log-level error check --hide-inclusion-graph advisories
    kinds="licences, bans, sources and advisories"
else
    echo "deny: advisories were NOT checked: there is no copy of github.com/rustsec/advisory-db" >&2
    kinds="licences, bans and sources"
fi
cpu
echo "deny: checked the $kinds of $(grep -c '^\[\[package\]\]' Cargo.lock) packages; CPU time $seconds s${built:+, of which $built s built cargo-deny}"
