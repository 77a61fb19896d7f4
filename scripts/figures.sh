#!/usr/bin/env bash
# Copies the newest figures of `make bench` (benches/results/*.json) into README.md and docs/.
#
#     scripts/figures.sh            rewrites every block
#     scripts/figures.sh --check    changes nothing; fails if a block differs from the results
#
# A block stands between two markers and holds one table:
#
#     <!-- figures NAME... -->
#     ...
#     <!-- end figures -->
#
# NAME is a figure's id (`ladder.xdp_shared.live.75`), the beginning of several with * (`memory.*`), or * for all of them.
# The table has the claim, what was measured, what is required, and held or MISSED; below it stands where, when and at which commits.
# Of a benchmark that several machines ran, the newest run counts; where a table has those of several machines, the rows of all but the first say so.
# Without results, blocks stay as they are. ROOT=DIR: another tree, for check-docs.sh's own proof.
set -euo pipefail
cd "${ROOT:-$(dirname "$0")/..}"
check=
case ${1:-} in
    '') ;;
    --check) check=yes ;;
    *)
        echo "figures: unknown option '$1'; expected none or --check" >&2
        exit 2
        ;;
esac

# The figures of each benchmark's newest run, with machine and kernel, in the order of the file that has the most. Never those of two runs
# mixed: what a run did not try has no figure in it, and that of an older run would stand beside totals that do not include it.
merged() {
    local file
    for file in benches/results/*.json; do
        # Not of make bench: make experiments.
        [ -e "$file" ] && [ "$file" != benches/results/experiments.json ] || continue
        printf '%s %s\n' "$(grep -c '^    {.*"claim"' "$file")" "$file"
    done | sort -rn | cut -d ' ' -f 2- | xargs -r awk '
        function field(name) { match($0, "\"" name "\": ?\"[^\"]*\""); v = substr($0, RSTART, RLENGTH); sub(/^"[^"]*": ?"/, "", v); sub(/"$/, "", v); return v }
        /^  "machine"/ { machine = field("machine") }
        /^  "kernel"/ { kernel = field("kernel") }
        /^    {.*"claim"/ {
            bench = field("id"); sub(/\..*/, "", bench)
            started = field("started")
            if (!(bench in newest)) benches[++count] = bench
            if (started >= newest[bench]) { newest[bench] = started; from[bench] = FILENAME }
            sub(/},?$/, "")
            lines[bench, FILENAME] = lines[bench, FILENAME] $0 ",\"machine\":\"" machine "\",\"kernel\":\"" kernel "\"}\n"
        }
        END { for (i = 1; i <= count; i++) printf "%s", lines[benches[i], from[benches[i]]] }
    '
}

# The value of a string field of one line of the file, which has no quotes in its strings.
field() { sed -nE "s/.*\"$1\": ?\"([^\"]*)\".*/\1/p"; }

# The table of the figures whose ids match the given names.
table() {
    local results=$1 names=$2 line id name found shown= machine mark
    local machines=()
    echo "| claim | measured | required | |"
    echo "|---|---|---|---|"
    for name in $names; do
        found=
        while IFS= read -r line; do
            id=$(field id <<< "$line")
            # shellcheck disable=SC2254 # the name is a pattern
            case $id in $name) ;; *) continue ;; esac
            found=yes
            shown+=$line$'\n'
            machine=$(field machine <<< "$line")
            mark=
            for at in "${!machines[@]}"; do [ "${machines[at]}" != "$machine" ] || mark=$at; done
            [ -n "$mark" ] || { mark=${#machines[@]}; machines+=("$machine"); }
            [ "$mark" -gt 0 ] && mark=" ($((mark + 1)))" || mark=
            echo "| $(field claim <<< "$line") | $(field measured <<< "$line") |" \
                "$(field required <<< "$line") | $(field verdict <<< "$line" | sed 's/missed/**missed**/')$mark |" \
                | sed -E 's/  +/ /g'
        done < "$results"
        if [ -z "$found" ]; then
            echo "figures: benches/results has no figure '$name'" >&2
            return 1
        fi
    done
    # Each figure has its own commit and time: a run of one benchmark replaces only its figures.
    local steal lines
    all() { field "$1" <<< "$lines" | cut -d T -f 1 | sort -u | paste -sd , | sed 's/,/, /g'; }
    for at in "${!machines[@]}"; do
        lines=$(while IFS= read -r line; do
            [ -z "$line" ] || [ "$(field machine <<< "$line")" != "${machines[at]}" ] || printf '%s\n' "$line"
        done <<< "$shown")
        steal=$(sed -nE 's/.*"steal_percent":([0-9.]+).*/\1/p' <<< "$lines" | sort -n | tail -n 1)
        [ "$at" -gt 0 ] && mark="($((at + 1))) " || mark=
        echo
        echo "$mark${machines[at]}, $(all kernel); measured on $(all started) at $(all commit); at most ${steal} % of a benchmark's CPU time stolen" \
            "by the hypervisor."
    done
}

# A page with its blocks replaced.
replaced() {
    local page=$1 results=$2 line names=
    while IFS= read -r line; do
        case $line in
            '<!-- figures '*' -->')
                names=${line#<!-- figures }
                names=${names% -->}
                echo "$line"
                set -f
                table "$results" "$names"
                set +f
                ;;
            '<!-- end figures -->')
                names=
                echo "$line"
                ;;
            *) [ -n "$names" ] || printf '%s\n' "$line" ;;
        esac
    done < "$page"
    if [ -n "$names" ]; then
        echo "figures: $page: a block without <!-- end figures -->" >&2
        return 1
    fi
}

results=$(mktemp)
work=$(mktemp)
trap 'rm -f "$results" "$work"' EXIT
merged > "$results"
status=0
mapfile -t pages < <(grep -rlE '^<!-- figures .* -->$' --include='*.md' README.md docs || true)
if [ ! -s "$results" ]; then
    echo "figures: benches/results has no results of make bench; ${#pages[@]} pages are not compared" >&2
    exit 0
fi
for page in "${pages[@]}"; do
    replaced "$page" "$results" > "$work"
    if cmp -s "$work" "$page"; then continue; fi
    if [ -n "$check" ]; then
        echo "figures: $page differs from benches/results; run scripts/figures.sh" >&2
        diff -u "$page" "$work" >&2 || true
        status=1
    else
        cat "$work" > "$page"
        echo "figures: $page has the newest figures" >&2
    fi
done
exit $status
