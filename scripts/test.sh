#!/usr/bin/env bash
# Every test of the workspace, none of them skipped. All are built first; each test binary runs in a root as new as that
# of a fresh machine (fresh-root.sh).
#
#   all others        one binary after the other: a test may need the machine for itself
#   v*                emulated machines: each keeps one CPU busy, so they run beside each other
#   b*
#   documentation
#
# Cargo selects test binaries by name or pattern, and has no "all but": so they are told apart by their first letter.
set -uo pipefail
cd "$(dirname "$0")/.."
export UDPATH_REQUIRE_ALL=1
fresh="target.'cfg(all())'.runner = '$PWD/scripts/fresh-root.sh'"
# udpath-bench has no tests; a harness of it would be built all the same.
tests() { cargo test --workspace --exclude udpath-bench --locked --no-fail-fast --config "$fresh" "$@"; }

tests --no-run || exit
status=0
tests --lib --bins --test '[!bv]*' || status=$?

output=$(mktemp)
trap 'rm -f "$output"' EXIT
tests --test 'b*' > "$output" 2>&1 & beside=$!
tests --test 'v*' || status=$?
wait "$beside" || status=$?
cat "$output"

tests --doc || status=$?
exit "$status"
