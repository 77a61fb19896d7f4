#!/usr/bin/env bash
# Runs every test with full-length campaigns (100 kills where `make test` has a few), and the unsafe code under
# AddressSanitizer and Miri, and writes their figures to benches/results/soak.txt, which is committed. Takes more than an hour on two cores; run nothing else.
#
#     scripts/soak.sh                                  everything
#     scripts/soak.sh --test kill --test boots         only these test binaries
#     scripts/soak.sh --test alone accounting::        only these tests of one
#
# Each figure names the commit that it was measured with. Figures of earlier runs stay: a campaign that is run again adds a line.
set -euo pipefail
cd "$(dirname "$0")/.."

results=benches/results/soak.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: > "$work/figures"

if [ -z "${UDPATH_PEERS:-}" ]; then
    if scripts/peers.sh target/peers; then
        export UDPATH_PEERS=$PWD/target/peers
    else
        echo "zones of the suites of BIND, Knot and NSD: not fetched" >> "$work/figures"
    fi
fi

status=0
cargo build --workspace --locked
# As in `make test`: each test binary in a fresh root.
fresh="target.'cfg(all())'.runner = '$PWD/scripts/fresh-root.sh'"
UDPATH_REQUIRE_ALL=1 UDPATH_SOAK="$work/figures" cargo test --workspace --locked --no-fail-fast --config "$fresh" "$@" || status=$?

if [ $# -eq 0 ]; then
    # Each fails if nothing ran, and adds a figure.
    for check in asan miri; do
        UDPATH_REQUIRE_ALL=1 UDPATH_SOAK="$work/figures" "scripts/$check.sh" || status=$?
    done
fi

if [ ! -s "$work/figures" ]; then
    echo "soak: no campaign reported a figure; $results is unchanged" >&2
    exit 1
fi
# The results of the last run are no change of what runs.
commit=$(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD -- . ":!$results" || echo ' with local changes')
sed -i "s/\$/ [$commit]/" "$work/figures"
[ ! -f "$results" ] || sed '1,/^$/d' "$results" >> "$work/figures"
{
    echo "# make soak: the figures of every run of a campaign, one per line, each with its commit."
    echo "tests run last: ${*:-all}"
    echo "kernel: $(uname -sr)"
    echo "CPUs: $(nproc)"
    if [ "$status" -eq 0 ]; then echo "tests: all passed"; else echo "tests: FAILED"; fi
    echo
    sort "$work/figures"
} > "$work/soak.txt"
mkdir -p "$(dirname "$results")"
mv "$work/soak.txt" "$results"
echo "soak: wrote $results" >&2
exit "$status"
