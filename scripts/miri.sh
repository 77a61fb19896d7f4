#!/usr/bin/env bash
# The unsafe code of the datapath's frames, rings and epochs, and of the sockets' message arrays, under Miri: what the other crates'
# unsafe code does is system calls, which Miri does not know (scripts/asan.sh runs those).
#
# Needs a nightly Rust; its components are installed if rustup can fetch them.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "miri: installing it: rustup toolchain install nightly --profile minimal -c miri -c rust-src" >&2
    rustup toolchain install nightly --profile minimal -c miri -c rust-src >&2
fi
# Isolation off: the tests read clocks. Leaks ignored: a region with outstanding frames stays mapped on purpose. Few cases:
# Miri is some hundred times slower.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" PROPTEST_CASES=4
figures=${UDPATH_SOAK:-}
unset UDPATH_SOAK
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo +nightly miri test -p udpath-stack --lib --target-dir target/miri --locked -- frame:: ring:: epoch:: slots:: 2>&1 | tee "$log"
# The message arrays under both models of aliasing: their tests play the kernel's part.
for model in "" -Zmiri-tree-borrows; do
    MIRIFLAGS="-Zmiri-disable-isolation $model" cargo +nightly miri test -p udpath-serve -p udpath-load --lib \
        --target-dir target/miri --locked -- sys::burst sys::pointers 2>&1 | tee -a "$log"
done
passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{ sum += $1 } END { print sum }')
[ "${passed:-0}" -gt 0 ] || { echo "miri: no test passed" >&2; exit 1; }
echo "miri: $passed tests passed"
[ -z "$figures" ] || echo "unit tests under Miri: passed: $passed" >> "$figures"
