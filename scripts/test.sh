#!/usr/bin/env bash
# Every test of the workspace, none of them skipped. All are built first; each test binary runs in a root as new as that
# of a fresh machine (fresh-root.sh).
#
#   all others        one binary after the other: a test may need the machine for itself
#   boots, vm         emulated machines: each keeps one CPU busy, so they run at the same time
#   beside            waits for other programs most of the time: beside them
#   documentation     the same
#
# Cargo selects test binaries by name or pattern, and has no "all but": so they are told apart by their first letter.
set -uo pipefail
cd "$(dirname "$0")/.."
export UDPATH_REQUIRE_ALL=1
# Tests of one binary at the same time. As many as CPUs, the harness's default, leave them idle: most tests wait for programs.
# More: those that share the CPUs take longer than they may.
export RUST_TEST_THREADS=$((2 * $(nproc)))
fresh="target.'cfg(all())'.runner = '$PWD/scripts/fresh-root.sh'"
# udpath-bench has no tests; a harness of it would be built all the same.
all=(cargo test --workspace --exclude udpath-bench --locked)
# tests LANE [ARGUMENT]...: runs those that the arguments select, and keeps the times of each and of the lane.
tests() {
    local lane=$1
    shift
    scripts/times.sh step "tests: $lane" "${prefix[@]}" "${all[@]}" --no-fail-fast --config "$fresh" "$@" 2>&1 | scripts/times.sh tests
}

scripts/times.sh step build "${all[@]}" --no-run || exit
prefix=()
status=0
tests "in turn" --lib --bins --test '[!bv]*' || status=$?

output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
declare -A lanes
lane() { tests "$@" > "$output/$1" & lanes[$1]=$!; }
lane beside --test beside
# Those wait for answers, these only compute: first the boots, which follow one another and so take longest.
prefix=(nice -n 5)
lane boots --test boots
prefix=(nice -n 10)
lane doc --doc
# Each takes a CPU, so that more of them at once only take longer.
tests vm --test vm -- --test-threads="$(nproc)" || status=$?
for name in "${!lanes[@]}"; do
    wait "${lanes[$name]}" || status=$?
    cat "$output/$name"
done
exit "$status"
