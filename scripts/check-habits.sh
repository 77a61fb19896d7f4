#!/usr/bin/env bash
# Holds the tree to two habits that no compiler checks: unsafe code only in modules named sys, and no file of ours so
# long that nobody reads it (600 lines; most stay under 400).
set -euo pipefail
cd "$(dirname "$0")/.."
status=0

while IFS= read -r file; do
    case "$file" in
        */sys.rs | */sys/*.rs) ;;
        *) if grep -nE '^[^/]*\bunsafe\b *(\{|impl|fn|extern)' "$file"; then
               echo "$file: unsafe code outside a module named sys" >&2
               status=1
           fi ;;
    esac
    lines=$(wc -l < "$file")
    if [ "$lines" -gt 600 ]; then
        echo "$file: $lines lines; split it where its concepts part" >&2
        status=1
    fi
done < <(git ls-files '*.rs')
exit $status
