#!/usr/bin/env bash
# fuzz/run.sh EXECUTIONS SECONDS [TARGET...]: every target (or those named) under libFuzzer with AddressSanitizer, until it has
# been executed EXECUTIONS times in all runs together, for SECONDS at most in this one.
#
# executions.tsv has a line for each target and run, and is committed: a run continues where the last one stopped. Inputs come
# from seeds/ and from those that earlier runs kept (corpus/). A failing input is left in artifacts/TARGET/; add it to
# seeds/TARGET/found-* with the fix, and `cargo test` replays it from then on.
#
# The parsers have no unsafe code; what they stand on has: the standard library, crates, the datapath's modules named sys.
# The compiler is the stable one, whose distribution contains the sanitizer's runtime but not the permission to ask for it:
# RUSTC_BOOTSTRAP gives that. What cargo-fuzz would add is the flags below.
set -euo pipefail
cd "$(dirname "$0")"
usage="usage: fuzz/run.sh EXECUTIONS SECONDS [TARGET...]"
wanted=${1:?"$usage"} seconds=${2:?"$usage"}
shift 2
[[ "$wanted" =~ ^[1-9][0-9]{0,11}$ ]] || { echo "fuzz: \"$wanted\" is not a number of executions from 1 to 999999999999" >&2; exit 2; }
[[ "$seconds" =~ ^[1-9][0-9]{0,5}$ ]] || { echo "fuzz: \"$seconds\" is not a number of seconds from 1 to 999999" >&2; exit 2; }
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(basename -s .rs fuzz_targets/*.rs)
fi
for target in "${targets[@]}"; do
    [ -e "fuzz_targets/$target.rs" ] || { echo "fuzz: there is no target $target; fuzz_targets/ has one file each" >&2; exit 2; }
done

# libFuzzer is C++, and must not check itself: the crate cc asks for that too, and it takes a third more time.
export CXX=${CXX:-clang++} CXXFLAGS=-fno-sanitize=address RUSTC_BOOTSTRAP=1
sanitizer=address
# What libFuzzer needs to see: which edges were taken, and what was compared with what. For the target alone, not for build
# scripts: that is why the target is named.
triple=$(rustc -vV | sed -n 's/^host: //p')
# The inputs of these targets are lists of steps: there is no constant to find, and tracing comparisons takes a quarter of their
# time. They are built without it, in a folder of their own.
steps=(receive report_values)
takes_steps() { [[ " ${steps[*]} " == *" $1 "* ]]; }
folder() { if takes_steps "$1"; then echo target/steps; else echo target; fi; }
build() {
    local folder=$1 flags="-Zsanitizer=$sanitizer -Cpasses=sancov-module --cfg fuzzing" kind target bins=()
    shift
    # Those that are run: linking one takes as long as compiling a crate.
    for target in "${targets[@]}"; do
        [ "$(folder "$target")" != "$folder" ] || bins+=(--bin "$target")
    done
    for kind in level=4 inline-8bit-counters pc-table "$@"; do flags+=" -Cllvm-args=-sanitizer-coverage-$kind"; done
    RUSTFLAGS=$flags cargo build --release --quiet --locked "${bins[@]}" --target "$triple" --target-dir "$folder"
}
folders=$(for target in "${targets[@]}"; do folder "$target"; done)
if grep -qx target <<< "$folders"; then build target trace-compares; fi
if grep -qx target/steps <<< "$folders"; then build target/steps; fi

# - SQLite is one file of C with static tables of the same name, which the sanitizer takes for two definitions of one.
# - Freed memory is kept for as long as an input takes, not 256 MiB of it, which is in no cache.
# - Stack frames are not kept after their functions return. Keeping them takes a quarter of the time; safe Rust keeps no pointer
#   into a frame, and modules named sys keep pointers only to mapped and allocated memory.
# - Where memory was allocated is not recorded: a failing input, run again without this, says so.
export ASAN_OPTIONS=detect_odr_violation=0:quarantine_size_mb=4:detect_stack_use_after_return=0:malloc_context_size=0

record=executions.tsv
[ -e $record ] || printf 'date\tcommit\ttarget\tsanitizer\texecutions\tseconds\tresult\n' > $record
commit=$(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD -- .. ":!$record" || echo +)
# Executions of a target with this sanitizer in all runs.
executed() {
    awk -F '\t' -v target="$1" -v sanitizer=$sanitizer '$3 == target && $4 == sanitizer { all += $5 } END { print all + 0 }' $record
}
# No input may be longer: twice the longest seed, so that none is cut, and 4 KiB at least. Longer: most of the time goes into
# bytes that no parser reads. Where inputs are lists of steps, each takes its time, and `report_values` reads 32 of them at most:
# there it is twice the longest seed.
longest() {
    local seed least=4096
    if takes_steps "$1"; then least=0; fi
    seed=$(find "seeds/$1" -type f -printf '%s\n' | sort -n | tail -n 1)
    echo $((2 * seed > least ? 2 * seed : least))
}

failed=() short=()
for target in "${targets[@]}"; do
    before=$(executed "$target")
    if [ "$before" -ge "$wanted" ]; then
        echo "fuzz: $target: $before executions already"
        continue
    fi
    mkdir -p "corpus/$target" "artifacts/$target"
    log=$(mktemp) result="nothing found" begin=$SECONDS
    # -timeout: no input should take a second; two minutes of the clock, because others may take the CPUs from a run at idle
    # priority for half a minute.
    # -detect_leaks: a target that keeps anything, such as a table that is made once, is searched for leaks after every input,
    # for a tenth of a second each; safe Rust rarely leaks, and what grows meets the limit of memory.
    # Exit code 72: ended with SIGINT, which is recorded like a run whose time is over.
    "$(folder "$target")/$triple/release/$target" "corpus/$target" "seeds/$target" -artifact_prefix="artifacts/$target/" \
        -runs=$((wanted - before)) -max_total_time="$seconds" -max_len="$(longest "$target")" -timeout=120 \
        -detect_leaks=0 -rss_limit_mb=4096 -print_final_stats=1 >"$log" 2>&1 || [ $? -eq 72 ] || result=failed
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    cover=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 || true)
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%Y-%m-%d)" "$commit" "$target" $sanitizer "${runs:-0}" \
        $((SECONDS - begin)) "$result" >> $record
    if [ "$result" = failed ]; then
        failed+=("$target")
        grep -v '^#[0-9]' "$log" | tail -n 60 >&2
        echo "fuzz: $target: failed; the input is in fuzz/artifacts/$target" >&2
    else
        echo "fuzz: $target: ${runs:-0} executions, ${cover:-cov: 0}, nothing found"
        [ "$(executed "$target")" -ge "$wanted" ] || short+=("$target")
    fi
    rm -f "$log"
done
[ ${#short[@]} -eq 0 ] || echo "fuzz: fewer than $wanted executions so far: ${short[*]}; run it again to go on"
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz: failed: ${failed[*]}" >&2
    exit 1
fi
