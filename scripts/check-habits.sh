#!/usr/bin/env bash
# Checks twelve rules that no compiler checks: no circular dependencies between files; comments of at most 120 columns, but
# for diagrams and tables; unsafe code only in modules named sys; no file over 400 lines; replaced names do not return; tests
# compare documents with their schemas; only the sink writes to stdout and stderr; no shell runs text of others; programs are
# started, and files opened by system calls, in a few known places; the hosted CI runs .ci/run, and nothing else, on each
# supported Debian; and a test that only `make soak` runs says why.
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
    if [ "$lines" -gt 400 ]; then
        echo "$file: $lines lines; split it where its concepts part" >&2
        status=1
    fi
done < <(git ls-files '*.rs')

# Replaced names and their replacements. scripts/check-docs.sh has the words for prose.
replaced=(
    'Desk|Hands:Dispatch, ServiceHandler, ServiceRunner'
    'Doors|close_door:AddressFilter, stop_receiving'
    'Depot|Station|abroad:ReturnQueue, ReturnHandle, outstanding'
    'Keeper:AddressMonitor, Spawner'
    'Rival|rivals|despite:Conflict, conflicts, ignore_conflicts'
    'Wish|WISH|WISHES|wish|wishes|whereabouts|recall:SettingRequest, context, from the journal'
    'Competitor|Summit|Course|Ways:ServerUnderTest, ClimbResult, RunWindow, Routes'
    'foretold|foretell|Foretell:predicted, predict'
    'PATIENCE|LOOK|ROOM|LONGEST:TIMEOUT, POLL_INTERVAL, BUFFER_LEN, MAX_...'
    'udpath_tests:udpath_rig'
)
for entry in "${replaced[@]}"; do
    # In code, not in comments: plain English may need the word.
    if git grep -nwE "${entry%%:*}" -- '*.rs' '*.c' '*.h' | grep -vE '^[^:]*:[0-9]*: *(//|/?\*)'; then
        echo "these names were replaced by ${entry#*:}" >&2
        status=1
    fi
done
if git grep -nE '^\s*#\[ignore' -- '*.rs' \
    | grep -vE '#\[ignore = "(in make soak: .{20,}|(a part|the server) of .*|runs in the emulated machine: .*)"\]$'; then
    echo 'a test that make test leaves out says why: #[ignore = "in make soak: REASON"], or what it is a part of' >&2
    status=1
fi
# What a test has the program print is compared with docs/schemas: Run and Said do it, json does it for other outputs.
if git grep -nE 'from_(slice|str)(::<[^>]*>)?\(&?\w+\.stdout' -- tests crates/cli/tests; then
    echo "read a program's output with udpath_rig::json" >&2
    status=1
fi
# Clippy finds println and eprintln, not handles. What asks only whether a stream is a terminal, or hands on its descriptor, prints
# nothing. The alternate screen of `top` is ratatui's; `revert` writes one constant to a pipe; a signal's handler writes prepared text
# to the descriptor; the lab's line is the tests'.
if git grep -nE '\bstd(out|err)\(\)' -- 'crates/*/src/*.rs' ':!crates/cli/src/terminal/sink.rs' ':!crates/cli/src/verbs/top/screen.rs' \
    ':!crates/cli/src/verbs/revert.rs' ':!crates/cli/src/signals.rs' ':!crates/lab/src/needs_root.rs' \
    | grep -vE 'std(out|err)\(\)(\.is_terminal|\.as_fd)|tcgetwinsize'; then
    echo "print with crates/cli/src/terminal/sink.rs: foreign text must not drive a terminal" >&2
    status=1
fi
# Only the operator's own --restart is a shell's; a checker's shell has a constant script. Names from /proc, control groups and
# configurations go into argument lists.
if git grep -nE 'Command::new\("[^"]*\b(ba|da)?sh"|\b(ba|da)?sh", *"-c"' -- 'crates/*/src/*.rs' ':!crates/*/src/**/tests.rs' ':!crates/*/src/**/tests/*' \
    | grep -vE '^crates/tune/src/services/(restart|confined|start)\.rs'; then
    echo "no shell for text of others: pass arguments, as crates/tune/src/services/restart.rs does" >&2
    status=1
fi
# Each place that starts a program: what a server's user may have chosen, its checker, is run by confined.rs alone, and the others
# start programs of the operator's, of root's or of udpath's own. Those of the list that only tests have are there, too.
starts='advise/src/running/target|cli/src/verbs/(revert|levers|export/reading)|experiment/src/program|host/src/process/(held|thread)|lab/src/machine'
starts+='|multiply/src/(supervisor|units|instance)|profile/src/symbols/file|protocols/src/dns/template/types|report/src/html/flame'
starts+='|tune/src/(services/(restart|view|confined|advisory|start|glob)|policy/(unit|spread)|machine/file|units/(manager|setting))'
if git grep -nE 'Command::new\(' -- 'crates/*/src/*.rs' ':!crates/*/src/**/tests.rs' ':!crates/*/src/**/tests/*' \
    | grep -vE "^crates/($starts)\.rs"; then
    echo "who chose this program, and with whose rights does it run? crates/tune/src/services/confined.rs, or add it to scripts/check-habits.sh" >&2
    status=1
fi
# Clippy's list has the standard library's ways to open a file (clippy.toml); these are the kernel's.
if git grep -nE '\bopenat2?\(|fs::open(at2?)?\(' -- 'crates/*/src/*.rs' ':!crates/files' \
    | grep -vE '^crates/(host/src/source/folder|profile/src/symbols/file|stack/src/port/xdp/interface)\.rs'; then
    echo "open files with crates/files: regular ones only, up to a limit, without waiting" >&2
    status=1
fi
# What a workflow did by itself would be checked there only.
workflow=.github/workflows/ci.yml
for line in 'debian: \["12", "13", "sid"\]' 'image: debian:\$\{\{ matrix.debian \}\}' '- run: \.ci/run'; do
    if ! grep -qE "^ *$line\$" "$workflow"; then
        echo "$workflow has no line '$line'" >&2
        status=1
    fi
done
if grep -nE '\b(cargo|make|scripts/)' "$workflow" | grep -vE '^[0-9]+:#|\.cargo/bin'; then
    echo "$workflow: what CI does belongs into .ci/run" >&2
    status=1
fi
# Diagrams and tables lose their shape at the end of a line.
if git ls-files '*.rs' | LC_ALL=C.UTF-8 xargs grep -nE '^.{121,}$' | grep -E '^[^:]*:[0-9]+: *//' \
    | grep -vE '[─│▸┬═└┌├◂◀]|[^ ]  +[^ ]|^[^:]*:[0-9]+: *//[/!] \|'; then
    echo "comments have at most 120 columns: break the line" >&2
    status=1
fi
python3 scripts/circles.py || status=1
exit $status
