#!/usr/bin/env bash
# Runs every test with full-length campaigns (100 kills where `make test` has a few), and the unsafe code under
# AddressSanitizer and Miri. Each campaign has a file in benches/results/soak, which is committed: a run adds a line. Takes more than an
# hour on two cores; run nothing else.
#
#     scripts/soak.sh                                  everything
#     scripts/soak.sh --test kill --test boots         only these test binaries
#     scripts/soak.sh --test alone accounting::        only these tests of one
#     scripts/soak.sh asan miri                        only the unsafe code, under one of them or both
#
# A line has the date, the commit, the Git trees of crates/ and tests/ (what ran: equal trees are equal code), the machine, and the figure.
# What was measured up to 2026-11-29 is in benches/results/soak.txt, to which nothing is added.
set -euo pipefail
cd "$(dirname "$0")/.."

results=benches/results/soak
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: > "$work/figures"

checks=()
while [ "${1:-}" = asan ] || [ "${1:-}" = miri ]; do
    checks+=("$1")
    shift
done
[ $# -gt 0 ] || [ ${#checks[@]} -gt 0 ] || all=1

if [ -n "${all:-}" ] && [ -z "${UDPATH_PEERS:-}" ]; then
    if scripts/peers.sh target/peers; then
        export UDPATH_PEERS=$PWD/target/peers
    else
        echo "zones of the suites of BIND, Knot and NSD: not fetched" >> "$work/figures"
    fi
fi

status=0
if [ $# -gt 0 ] || [ -n "${all:-}" ]; then
    # All of them, as in test.sh: the tests start programs of other packages.
    cargo test --workspace --exclude udpath-bench --no-run --locked
    # As in `make test`: each test binary in a fresh root.
    fresh="target.'cfg(all())'.runner = '$PWD/scripts/fresh-root.sh'"
    run=(cargo test --workspace --exclude udpath-bench --locked --no-fail-fast --config "$fresh")
    export UDPATH_REQUIRE_ALL=1 UDPATH_SOAK="$work/figures"
    "${run[@]}" "$@" || status=$?
    # Those that `make test` leaves out; others that are marked as ignored are parts of tests.
    mapfile -t left_out < <(git grep -hA1 '#\[ignore = "in make soak: ' -- '*.rs' | sed -n 's/^fn \([a-z0-9_]*\)().*/\1/p')
    [ -z "${all:-}" ] || "${run[@]}" -- --ignored "${left_out[@]}" || status=$?
fi
[ -z "${all:-}" ] || checks=(asan miri)
# Each fails if nothing ran, and adds a figure.
for check in "${checks[@]}"; do
    UDPATH_REQUIRE_ALL=1 UDPATH_SOAK="$work/figures" "scripts/$check.sh" || status=$?
done

if [ ! -s "$work/figures" ]; then
    echo "soak: no campaign reported a figure; $results is unchanged" >&2
    exit 1
fi
# The results of the last run are no change of what runs.
changes=
git diff --quiet HEAD -- . ":!$results" || changes=' with local changes'
code="$(git rev-parse --short=12 HEAD)$changes, crates $(git rev-parse --short=12 HEAD:crates), tests $(git rev-parse --short=12 HEAD:tests)"
machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(uname -sr)"
[ "$status" -eq 0 ] || code="$code, a test of this run FAILED"
mkdir -p "$results"
while IFS= read -r line; do
    name=${line%%: *}
    file=$results/$(tr '[:upper:]' '[:lower:]' <<< "$name" | sed 's/[^a-z0-9.]\+/-/g; s/^-//; s/-$//').txt
    [ -f "$file" ] || printf '# %s\n' "$name" > "$file"
    printf '%s: %s [%s; %s]\n' "$(date -u +%FT%H:%MZ)" "${line#*: }" "$code" "$machine" >> "$file"
    echo "soak: $file: ${line#*: }" >&2
done < "$work/figures"
exit "$status"
