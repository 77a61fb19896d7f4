#!/usr/bin/env bash
# The unit tests of every crate that has unsafe code under AddressSanitizer, each binary in a root as new as that of a fresh machine.
#
#     scripts/asan.sh                  all of them
#     scripts/asan.sh -p udpath-stack  arguments for cargo test: these crates alone
#
# The compiler is the stable one, as in fuzz/run.sh: its distribution contains the sanitizer's runtime, and RUSTC_BOOTSTRAP gives the
# permission to ask for it. The packages are found by their unsafe code, so that a new one cannot be forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=("$@")
if [ $# -eq 0 ]; then
    for folder in $(grep -rlE '^[^/]*\bunsafe\b *(\{|impl)' --include=*.rs crates/*/src | cut -d/ -f1,2 | sort -u); do
        packages+=(-p "$(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1)")
    done
fi

export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address
# - Leaks are not looked for: children of tests end without their destructors, and regions with outstanding frames stay mapped.
# - SQLite is one file of C with static tables of the same name, which the sanitizer takes for two definitions of one.
export ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:detect_stack_use_after_return=1
# Instrumented frames are several times as large.
export RUST_MIN_STACK=16777216
triple=$(rustc -vV | sed -n 's/^host: //p')
fresh="target.'cfg(all())'.runner = '$PWD/scripts/fresh-root.sh'"
# The tests' own campaigns are not repeated here.
figures=${UDPATH_SOAK:-}
unset UDPATH_SOAK
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# With a target named, build scripts and macros are not instrumented.
cargo test "${packages[@]}" --lib --bins --locked --no-fail-fast --target "$triple" --target-dir target/asan --config "$fresh" 2>&1 | tee "$log"
# That something ran, and that it was instrumented: the sanitizer's symbols are in each binary.
mapfile -t binaries < <(sed -n 's/^ *Running unittests .*(\(.*\))$/\1/p' "$log")
[ ${#binaries[@]} -gt 0 ] || { echo "asan: no test binary ran" >&2; exit 1; }
for binary in "${binaries[@]}"; do
    grep -q __asan_report_load "$binary" || { echo "asan: $binary is not instrumented" >&2; exit 1; }
done
passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{ all += $1 } END { print all + 0 }')
[ "$passed" -gt 0 ] || { echo "asan: no test passed" >&2; exit 1; }
echo "asan: $passed tests in ${#binaries[@]} binaries passed under AddressSanitizer"
[ -z "$figures" ] || echo "unit tests under AddressSanitizer: passed: $passed" >> "$figures"
