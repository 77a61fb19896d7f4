#!/usr/bin/env bash
# Copies the figures of the newest `make bench` (benches/results/*.json) into README.md and docs/.
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

# The newest by the time at which it was started; the names of two machines do not sort by date.
newest() {
    local file
    for file in benches/results/*.json; do
        [ -e "$file" ] || continue
        printf '%s %s\n' "$(field started < <(grep -m1 '^  "started"' "$file"))" "$file"
    done | sort | tail -n 1 | cut -d ' ' -f 2-
}

# The value of a string field of one line of the file, which has no quotes in its strings.
field() { sed -nE "s/.*\"$1\": ?\"([^\"]*)\".*/\1/p"; }

# The table of the figures whose ids match the given names.
table() {
    local results=$1 names=$2 line id name found shown=
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
            echo "| $(field claim <<< "$line") | $(field measured <<< "$line") |" \
                "$(field required <<< "$line") | $(field verdict <<< "$line" | sed 's/missed/**missed**/') |" \
                | sed -E 's/  +/ /g'
        done < <(grep '^    {.*"claim"' "$results")
        if [ -z "$found" ]; then
            echo "figures: $results has no figure '$name'" >&2
            return 1
        fi
    done
    # Each figure has its own commit and time: a run of one benchmark replaces only its figures.
    local steal
    of() { grep -m1 "^  \"$1\"" "$results" | sed -E 's/^[^:]*: "?([^",]*.*[^",])"?,?$/\1/'; }
    all() { field "$1" <<< "$shown" | cut -d T -f 1 | sort -u | paste -sd , | sed 's/,/, /g'; }
    steal=$(sed -nE 's/.*"steal_percent":([0-9.]+).*/\1/p' <<< "$shown" | sort -n | tail -n 1)
    echo
    echo "$(of machine), $(of kernel); measured on $(all started) at $(all commit); at most ${steal} % of a benchmark's CPU time stolen" \
        "by the hypervisor."
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

results=$(newest)
status=0
mapfile -t pages < <(grep -rlE '^<!-- figures .* -->$' --include='*.md' README.md docs || true)
if [ -z "$results" ]; then
    echo "figures: benches/results has no results of make bench; ${#pages[@]} pages are not compared" >&2
    exit 0
fi
work=$(mktemp)
trap 'rm -f "$work"' EXIT
for page in "${pages[@]}"; do
    replaced "$page" "$results" > "$work"
    if cmp -s "$work" "$page"; then continue; fi
    if [ -n "$check" ]; then
        echo "figures: $page differs from $results; run scripts/figures.sh" >&2
        diff -u "$page" "$work" >&2 || true
        status=1
    else
        cat "$work" > "$page"
        echo "figures: $page has the figures of $results" >&2
    fi
done
exit $status
