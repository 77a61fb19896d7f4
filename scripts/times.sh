#!/usr/bin/env bash
# What the steps and the tests of `make test` take, in seconds, in target/test-times.tsv: a line each, "step" or the test binary,
# its name, seconds, and of a test also how long before its end another one of that binary had ended.
#
#     scripts/times.sh step NAME COMMAND...    carries out a step, and adds its time
#     scripts/times.sh tests < OUTPUT          adds those of tests, from cargo's output, which it passes on
#     scripts/times.sh show                    all steps in their order, the slowest tests, and what tests that failed said:
#                                              last, where a long output is still read
#
# Tests that take turns (udpath_rig::alone) wait for them within their time: of those, the last column is what they took.
set -euo pipefail
cd "$(dirname "$0")/.."
times=target/test-times.tsv
failures=target/test-failures.txt
mkdir -p target

case "${1:-}" in
    step)
        name=$2
        shift 2
        start=$EPOCHREALTIME
        status=0
        "$@" || status=$?
        awk -v name="$name" -v start="$start" -v end="$EPOCHREALTIME" \
            'BEGIN { printf "step\t%s\t%.1f\n", name, end - start }' >> "$times"
        exit "$status"
        ;;
    tests)
        # mawk would read a whole buffer of lines before it looks at the first, and know no time of any.
        at_once=()
        ! awk -W version 2>&1 | grep -q mawk || at_once=(-W interactive)
        # A line of libtest: "test NAME ... ok <1.234s>".
        awk "${at_once[@]}" -v times="$times" -v failures="$failures" '
            { print; fflush() }
            # libtest repeats what failed tests printed between these two lines.
            $0 ~ /^---- .* stdout ----$/ { said = 1 }
            $0 == "failures:" || $1 == "Running" { said = 0 }
            said { print >> failures; fflush(failures) }
            $1 == "Running" { binary = $NF; gsub(/.*\/|-[0-9a-f]*\)$/, "", binary); ended = systime() }
            $1 == "test" && match($0, / <[0-9.]+s>$/) {
                name = $0
                sub(/^test /, "", name)
                sub(/ \.\.\. .*/, "", name)
                printf "%s\t%s\t%s\t%d\n", binary, name, substr($0, RSTART + 2, RLENGTH - 4), systime() - ended >> times
                fflush(times)
                ended = systime()
            }'
        ;;
    show)
        echo "steps, seconds:"
        awk -F'\t' '$1 == "step" { printf "  %-24s %7.1f\n", $2, $3 }' "$times"
        echo "the 30 slowest of $(awk -F'\t' '$1 != "step" { n++ } END { print n + 0 }' "$times") tests, seconds, and those since the test before ended:"
        awk -F'\t' '$1 != "step"' "$times" | sort -t "$(printf '\t')" -k 3,3nr \
            | awk -F'\t' 'NR <= 30 { printf "  %-8s %7.1f %5d  %s\n", $1, $3, $4, $2 }'
        [ ! -s "$failures" ] || { echo "failed:"; awk 'NR <= 200 { print substr($0, 1, 400) }' "$failures"; }
        ;;
    *)
        echo "usage: times.sh step NAME COMMAND... | tests | show" >&2
        exit 2
        ;;
esac
