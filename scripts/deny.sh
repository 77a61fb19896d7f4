#!/usr/bin/env bash
# Checks every dependency by deny.toml: licences, bans, sources and known vulnerabilities (RustSec).
#
#     scripts/deny.sh                 installs cargo-deny first if it is missing
#     scripts/deny.sh --no-install    skips the check if it is missing: for CI, which has its time limit
#
# Vulnerabilities need the database of github.com/rustsec/advisory-db; without access to it that part is skipped. Each skip
# prints a line.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
# One build for all checkouts of a machine.
tools=/var/cache/udpath/tools
[ -w "$(dirname "$tools")" ] || tools=${XDG_CACHE_HOME:-$HOME/.cache}/udpath/tools
export PATH=$tools/bin:$PATH

if ! cargo deny --version >/dev/null 2>&1; then
    if [ "${1:-}" = --no-install ]; then
        echo "deny: skipped: cargo-deny is not installed; \`make deny\` installs it" >&2
        exit 0
    fi
    echo "deny: building cargo-deny $version into $tools, once; this takes about a minute" >&2
    # Unoptimised: under a minute on two cores, and a check takes seconds all the same.
    CARGO_PROFILE_DEV_DEBUG=none cargo install cargo-deny --version "$version" --locked --quiet --debug --root "$tools"
fi

cargo deny --locked --log-level error check --hide-inclusion-graph bans licenses sources
if said=$(timeout 120 cargo deny --locked fetch db 2>&1); then
    cargo deny --locked --offline --log-level error check --hide-inclusion-graph advisories
else
    echo "deny: advisories skipped: cannot fetch the RustSec database: $(tail -n 1 <<< "$said")" >&2
fi
