#!/usr/bin/env bash
# Checks the Markdown files of the tree:
#   links        every relative link, and every link to a file of this repository, leads to a file that exists; #anchors to a heading
#   book         pages in docs/ link to pages in docs/ only; docs/SUMMARY.md lists each of them once
#   transcripts  a block that shows a shell prompt has a marker for scripts/transcripts.sh
#   figures      the blocks of scripts/figures.sh are those of the newest results of make bench, and none is stale for too long
#   experiments  the pages that `make experiment-docs` writes name the digest of the committed result
#   tests        a test that a page names as `path/file.rs::name` exists; each row of a section "Promises" or "Attackers" names one
#   words        no word that hides who does what (see CONTRIBUTING.md, English)
#
#     scripts/check-docs.sh          this tree; first proves on small broken trees that each check can fail
#     scripts/check-docs.sh ROOT     the Markdown files below ROOT, only checked
set -euo pipefail
script=$(realpath "${BASH_SOURCE[0]}")
figures=$(dirname "$script")/figures.sh
here=https://github.com/udpath/udpath/blob/main/

# Prints the text of a page without code blocks and code spans; keeps line numbers.
prose() {
    awk '/^ *(```|~~~)/ { fence = !fence; print ""; next } { print fence ? "" : $0 }' "$1" | sed -E 's/`[^`]*`//g'
}

# Prints the anchors of a page's headings, as GitHub and mdBook generate them.
anchors() {
    awk '/^ *(```|~~~)/ { fence = !fence } !fence && /^#+ /' "$1" \
        | sed -E 's/^#+ +//; s/\]\([^)]*\)//g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

complain() {
    echo "check-docs: $*" >&2
    status=1
}

links() {
    local page=$1 folder line link file anchor target
    folder=$(dirname "$page")
    while IFS=: read -r line link; do
        link=${link#](}
        link=${link%)}
        case $link in
            "$here"*) file=${link#"$here"} anchor= ;;
            *://* | mailto:*) continue ;;
            *)
                file=${link%%#*} anchor=
                [ "$file" = "$link" ] || anchor=${link#*#}
                if [ -z "$file" ]; then file=$page; else file=$folder/$file; fi
                target=$(realpath -m --relative-to=. "$file")
                case $page/$target in
                    docs/*.md/docs/*) ;;
                    docs/*) complain "$page:$line: $link leads out of the book; write $here$target" ;;
                esac ;;
        esac
        if [ ! -e "$file" ]; then
            complain "$page:$line: $link does not exist"
        elif [ -n "$anchor" ] && ! anchors "$file" | grep -qxF -- "$anchor"; then
            complain "$page:$line: $link: no heading with this anchor"
        fi
    done < <(prose "$page" | grep -noE '\]\([^) ]+\)' || true)
}

transcripts() {
    awk -v page="$1" '
        /^<!-- transcript / { marked = 1; open = !/-->/; next }
        open { open = !/-->/; next }
        /^```/ { fence = !fence; first = fence; if (!fence) marked = 0; next }
        fence && first && /^\$ / && !marked {
            printf "check-docs: %s:%d: a transcript without a marker <!-- transcript SCENE: COMMAND -->\n", page, FNR
            bad = 1
        }
        fence { first = 0 }
        !fence && marked && !/^$/ {
            printf "check-docs: %s:%d: the marker above has no block\n", page, FNR
            bad = 1
            marked = 0
        }
        END { exit bad }' "$1" >&2 || status=1
}

words() {
    local found
    found=$(prose "$1" | grep -nwiE "told|tells|nobody|whoever|foretell|foretold|seldom|meanwhile|deserves?|arranged|goes by|by (it|them)selves|by itself|seeds?" \
        | grep -viE -- "--seed|seed of|pure function of the seed" || true)
    [ -z "$found" ] || complain "$1: words to avoid: $found"
}

tests() {
    local line name file
    while IFS=: read -r line name; do
        name=${name//\`/}
        file=${name%%::*}
        grep -qsE "^ *fn ${name##*::}\(" "$file" || complain "$1:$line: there is no test $name"
    done < <(grep -noE '`[a-z0-9_/]+\.rs::[a-z0-9_]+`' "$1" || true)
}

# Every row of the table below a heading "Promises" or "Attackers" names a test; pages that promise have the first section, and
# SECURITY.md the second.
promises() {
    case $1 in
        SECURITY.md | docs/production-safety.md)
            grep -qx '## Promises' "$1" || complain "$1: there is no section Promises" ;;
    esac
    [ "$1" != SECURITY.md ] || grep -qx '## Attackers' "$1" || complain "$1: there is no section Attackers"
    awk -v page="$1" '
        /^## / { inside = $0 == "## Promises" || $0 == "## Attackers"; rows = 0 }
        inside && /^\|/ && ++rows > 2 && !/`[a-z0-9_\/]+\.rs::[a-z0-9_]+`/ {
            printf "check-docs: %s:%d: this row names no test\n", page, FNR
            bad = 1
        }
        END { exit bad }' "$1" >&2 || status=1
}

# The contents of these pages are compared by a test of the crate report, which needs a build.
experiments() {
    local page digest result=benches/results/experiments.json
    [ -e "$result" ] || return 0
    digest=$(printf '%s' "$(cat "$result")" | sha256sum | cut -d ' ' -f 1)
    while IFS= read -r page; do
        head -n 1 "$page" | grep -qF "sha256 $digest:" || complain "$page is not written from $result as it is; run make experiment-docs"
    done < <(printf '%s\n' "${pages[@]}" | grep -E '^docs/experiments(/.*)?\.md$')
}

summary() {
    local page count
    [ -e docs/SUMMARY.md ] || return 0
    while IFS= read -r page; do
        [ "$page" != docs/SUMMARY.md ] || continue
        count=$(grep -cF "](${page#docs/})" docs/SUMMARY.md || true)
        [ "$count" -eq 1 ] || complain "docs/SUMMARY.md lists ${page#docs/} $count times"
    done < <(printf '%s\n' "${pages[@]}" | grep '^docs/')
}

check() {
    local page
    status=0
    cd "$1"
    if [ -e .git ]; then
        mapfile -t pages < <(git ls-files --cached --others --exclude-standard -- '*.md' | while IFS= read -r page; do
            [ ! -e "$page" ] || echo "$page"
        done)
    else
        mapfile -t pages < <(find . -name '*.md' -printf '%P\n')
    fi
    for page in "${pages[@]}"; do
        links "$page"
        transcripts "$page"
        tests "$page"
        promises "$page"
        # The changelog of released versions is history; fixtures are third-party text.
        case $page in CHANGELOG.md | */tests/*) ;; *) words "$page" ;; esac
    done
    summary
    experiments
    ROOT=. "$figures" --check || complain "figures of README.md or docs/ differ from the results of make bench, or are too old"
    return $status
}

# Each of these trees has one error, and the check must find it.
prove() {
    local work text commit
    work=$(mktemp -d)
    trap 'rm -rf "$work"' RETURN
    mkdir -p "$work/docs" "$work/benches/results"
    # A figure of long ago, whose benchmark has not changed since.
    printf 'fn a() {}\n' > "$work/bench.rs"
    git -C "$work" init -q
    git -C "$work" add bench.rs
    git -C "$work" -c user.name=a -c user.email=a@example.org commit -q -m a
    commit=$(git -C "$work" rev-parse --short=12 HEAD)
    figure() {
        printf '    {"claim":"x","commit":"%s","id":"%s","measured":"1","paths":"bench.rs","required":"< 2","sources":"%s","started":"2026-01-01T00:00:00Z","steal_percent":0.0,"verdict":"held"}\n' \
            "$1" "$2" "$(git -C "$work" ls-files -s -- bench.rs | git hash-object --stdin | cut -c 1-12)"
    }
    sound() {
        rm -f "$work/SECURITY.md" "$work/docs/production-safety.md" "$work/docs/unlisted.md"
        printf 'fn a() {}\n' > "$work/bench.rs"
        git -C "$work" add bench.rs
        printf '  "%s": "%s",\n' machine m kernel k > "$work/benches/results/m.json"
        figure "$commit" a.b >> "$work/benches/results/m.json"
        printf '# Good page\n[here](docs/page.md#a-heading)\n<!-- figures a.b -->\n<!-- end figures -->\n' > "$work/README.md"
        ROOT=$work "$figures" 2>/dev/null
        printf 'fn good() {}\n' > "$work/test.rs"
        printf '# Page\n## A heading\n`test.rs::good` shows it.\n## Promises\n| promise | test |\n|---|---|\n| kept | `test.rs::good` |\n## More\n| a | b |\n|---|---|\n| c | d |\n<!-- transcript host: true -->\n```\n$ true\n```\n' > "$work/docs/page.md"
        printf -- '- [page](page.md)\n- [run](experiments.md)\n' > "$work/docs/SUMMARY.md"
        printf '{"schema":"udpath.experiment/1"}\n' > "$work/benches/results/experiments.json"
        printf '<!-- sha256 %s: do not edit -->\n# Run\n' "$(printf '{"schema":"udpath.experiment/1"}' | sha256sum | cut -d ' ' -f 1)" \
            > "$work/docs/experiments.md"
    }
    sound
    "$script" "$work" || { echo "check-docs: rejects a sound tree" >&2; return 1; }
    while IFS='|' read -r file text; do
        sound
        printf -- "$text" >> "$work/$file"
        git -C "$work" add bench.rs
        if "$script" "$work" 2>/dev/null; then
            echo "check-docs: does not find the fault in: $file: $text" >&2
            return 1
        fi
    done <<'FAULTS'
README.md|[gone](docs/gone.md)\n
README.md|[gone](docs/page.md#gone)\n
README.md|[gone](https://github.com/udpath/udpath/blob/main/gone.md)\n
README.md|[gone](#gone)\n
README.md|<!-- figures a.b -->\n| x | 3 | < 2 | held |\n<!-- end figures -->\n
README.md|<!-- figures a.c -->\n<!-- end figures -->\n
README.md|<!-- figures a.b -->\n
docs/page.md|[out](../README.md)\n
docs/page.md|```\n$ unmarked\n```\n
docs/page.md|<!-- transcript host: true -->\nno block\n
docs/page.md|`test.rs::gone` is missing\n
docs/page.md|`gone.rs::good` is missing\n
docs/page.md|## Promises\n| promise | test |\n|---|---|\n| kept | by nature |\n
docs/production-safety.md|# Safe\n[page](page.md)\n
SECURITY.md|# Secure\n
docs/page.md|The user is told.\n
docs/SUMMARY.md|- [again](page.md)\n
docs/unlisted.md|# Unlisted\n
benches/results/experiments.json|{"another":"result"}\n
bench.rs|fn changed() {}\n
benches/results/m.json|    {"claim":"x","commit":"0123456789ab","id":"c.d","measured":"1","paths":"bench.rs","required":"< 2","sources":"0","started":"2026-01-01T00:00:00Z","verdict":"held"}\n
FAULTS
}

if [ $# -gt 0 ]; then
    check "$1"
else
    prove
    check "$(dirname "$script")/.."
fi
