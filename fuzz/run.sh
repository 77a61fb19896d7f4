#!/usr/bin/env bash
# fuzz/run.sh SECONDS [TARGET...]: every target (or those named) under libFuzzer for SECONDS each, on the stable compiler.
#
# No sanitizer: those need a nightly compiler, and the parsers have no unsafe code for one to check. Inputs come
# from seeds/ and from those that earlier runs kept (corpus/). A failing input is left in artifacts/TARGET/; add
# it to seeds/TARGET/ with the fix, and `cargo test` replays it from then on.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?"usage: fuzz/run.sh SECONDS [TARGET...]"}
shift
[[ "$seconds" =~ ^[1-9][0-9]{0,5}$ ]] || { echo "fuzz: \"$seconds\" is not a number of seconds from 1 to 999999" >&2; exit 2; }

version=0.13.2
tools=$PWD/target/tools
export PATH=$tools/bin:$PATH
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: installing cargo-fuzz $version into fuzz/target/tools" >&2
    cargo install cargo-fuzz --version "$version" --locked --quiet --root "$tools"
fi
# libFuzzer is C++.
export CXX=${CXX:-clang++}

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(basename -s .rs fuzz_targets/*.rs)
fi
cargo fuzz build --fuzz-dir . --sanitizer none
failed=()
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    log=$(mktemp)
    # -max_len: above the longest seed, a result of boost. -timeout: no input should take a second; ten, because the
    # machine may be busy.
    if cargo fuzz run --fuzz-dir . --sanitizer none "$target" "corpus/$target" "seeds/$target" -- \
        -max_total_time="$seconds" -max_len=131072 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        cover=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
        echo "fuzz: $target: ${runs:-0} executions, ${cover:-cov: 0}, nothing found"
    else
        failed+=("$target")
        grep -v '^#[0-9]' "$log" | tail -n 40 >&2
        echo "fuzz: $target: failed; the input is in fuzz/artifacts/$target" >&2
    fi
    rm -f "$log"
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz: failed: ${failed[*]}" >&2
    exit 1
fi
