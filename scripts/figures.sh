#!/usr/bin/env bash
# Copies the newest figures of `make bench` (benches/results/*.json) into README.md and docs/.
#
#     scripts/figures.sh            rewrites every block
#     scripts/figures.sh --check    changes nothing; fails if a block differs from the results, or a figure is stale for too long
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
# Without results, blocks stay as they are.
#
# A figure is **stale** once the benchmark's sources or the crates it measures have changed (benches/src/sources.rs), if that is
# unknown, if its tree had local changes, or if its commit is not in the repository. Pages print that beside it; README leaves it out.
# The last line counts all figures. ROOT=DIR: another tree, for check-docs.sh's own proof.
set -euo pipefail
cd "${ROOT:-$(dirname "$0")/..}"
# Days between a stale figure and the newest commit. Fewer: a benchmark must run again before a change to its crates is
# finished. More: docs print figures that nobody would measure today.
STALE_DAYS=14

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
            if ($0 !~ /"kernel":/) $0 = $0 ",\"kernel\":\"" kernel "\""
            lines[bench, FILENAME] = lines[bench, FILENAME] $0 ",\"machine\":\"" machine "\"}\n"
        }
        END { for (i = 1; i <= count; i++) printf "%s", lines[benches[i], from[benches[i]]] }
    '
}

# value: a string field of $line, which has no quotes in its strings.
field() {
    value=
    [[ $line =~ \"$1\":\ ?\"([^\"]*)\" ]] && value=${BASH_REMATCH[1]}
    return 0
}

# For each list of paths and each commit on standard input's lines, a line for marked(): their hash now, as benches/src/sources.rs
# computes it, and whether the repository has the commit; a clone without its history is taken at its word.
facts() {
    local line value shallow word
    shallow=$(git rev-parse --is-shallow-repository 2>/dev/null) || true
    while IFS= read -r line; do
        field paths && printf 'paths\t%s\n' "$value"
        field commit && printf 'commit\t%s\n' "$value"
    done | sort -u | while IFS=$'\t' read -r word value; do
        case $word in
            paths)
                [ -n "$value" ] || continue
                # shellcheck disable=SC2086 # a list of paths
                printf 'paths\t%s\t%s\n' "$value" "$(git ls-files -s -- $value ':(exclude,glob)**/tests/**' \
                    ':(exclude,glob)**/tests.rs' ':(exclude,glob)**/fixtures/**' | git hash-object --stdin | cut -c 1-12)"
                ;;
            commit)
                if [ "$shallow" = true ] || git cat-file -e "$value^{commit}" 2>/dev/null; then
                    printf 'commit\t%s\tknown\n' "$value"
                fi
                ;;
        esac
    done
}

# The lines of $1, each stale one marked, and the count of all. Fails if one is stale for too long.
marked() {
    local newest cut
    newest=$(git log -1 --format=%cs 2>/dev/null) || newest=$(date -u +%F)
    cut=$(date -ud "$newest - $STALE_DAYS days" +%F)
    facts < "$1" | awk -F '\t' -v cut="$cut" -v days="$STALE_DAYS" '
        function field(name) { if (!match($0, "\"" name "\": ?\"[^\"]*\"")) return ""; v = substr($0, RSTART, RLENGTH); sub(/^"[^"]*": ?"/, "", v); sub(/"$/, "", v); return v }
        FNR == NR { fact[$1, $2] = $3; next }
        {
            verdicts[field("verdict")]++
            paths = field("paths"); commit = field("commit")
            if (commit ~ / / || paths == "" || fact["commit", commit] == "" || fact["paths", paths] != field("sources")) {
                stale++
                bench = id = field("id"); sub(/\..*/, "", bench)
                if (substr(field("started"), 1, 10) < cut) {
                    printf "figures: %s was measured more than %d days before the newest commit, and its code has changed since; measure it again: make bench BENCH=%s\n", id, days, bench > "/dev/stderr"
                    old++
                }
                sub(/}$/, ",\"stale\":\"yes\"}")
            }
            print
        }
        END {
            printf "figures: %d held, %d missed, %d not decided, %d stale\n", verdicts["held"], verdicts["missed"], verdicts["not decided"], stale > "/dev/stderr"
            exit old > 0
        }' - "$1"
}

# The table of the figures whose ids match the given names; in README those that are not stale.
table() {
    local results=$1 names=$2 page=$3 line value id name found machine mark at row left_out=0
    local machines=() lines=()
    local head="| claim | measured | required | |"$'\n'"|---|---|---|---|"
    for name in $names; do
        found=
        while IFS= read -r line; do
            field id
            # shellcheck disable=SC2254 # the name is a pattern
            case $value in $name) ;; *) continue ;; esac
            found=yes
            field stale
            if [ "$page" = README.md ] && [ -n "$value" ]; then
                left_out=$((left_out + 1))
                continue
            fi
            [ -z "$head" ] || echo "$head"
            head=
            field machine
            machine=$value
            mark=
            for at in "${!machines[@]}"; do [ "${machines[at]}" != "$machine" ] || mark=$at; done
            [ -n "$mark" ] || { mark=${#machines[@]}; machines+=("$machine"); }
            lines[mark]+=$line$'\n'
            row='|'
            for key in claim measured required verdict; do
                field "$key"
                # An empty cell has one space.
                row+=" $value${value:+ }|"
            done
            row=${row/| missed |/| **missed** |}
            field stale
            [ -z "$value" ] || row="${row%|}(stale) |"
            [ "$mark" -eq 0 ] || row="${row%|}($((mark + 1))) |"
            echo "$row"
        done < "$results"
        if [ -z "$found" ]; then
            echo "figures: benches/results has no figure '$name'" >&2
            return 1
        fi
    done
    # Each figure has its own commit and time: a run of one benchmark replaces only its figures.
    local all steal
    all() { while IFS= read -r line; do field "$1"; [ -z "$value" ] || echo "${value%%T*}"; done <<< "${lines[at]}" | sort -u | paste -sd , | sed 's/,/, /g'; }
    for at in "${!machines[@]}"; do
        steal=$(sed -nE 's/.*"steal_percent":([0-9.]+).*/\1/p' <<< "${lines[at]}" | sort -n | tail -n 1)
        [ "$at" -gt 0 ] && mark="($((at + 1))) " || mark=
        echo
        echo "$mark${machines[at]}, $(all kernel); measured on $(all started) at $(all commit); at most ${steal} % of a benchmark's CPU time stolen" \
            "by the hypervisor."
    done
    if [ "$left_out" -gt 0 ]; then
        [ -n "$head" ] || echo
        echo "Not shown: $left_out figures of code that has changed since; [the full table](docs/performance.md) has them, marked as stale."
    fi
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
                table "$results" "$names" "$page"
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
status=0
merged > "$work"
marked "$work" > "$results" || status=1
[ -n "$check" ] || status=0
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
