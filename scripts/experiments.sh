#!/usr/bin/env bash
# Runs the published experiments and keeps the result; as root, on a quiet machine, some 20 minutes on two cores.
#
#     scripts/experiments.sh run [NAME...]     out/experiments.html, out/experiments.json
#     scripts/experiments.sh docs              that result into benches/results/experiments.json, and its pages into docs/
#
# The committed result names no host. Experiments that a run does not have stay as they were, such as those of emulated machines, which
# `make soak` counts.
set -euo pipefail
cd "$(dirname "$0")/.."
udpath=${UDPATH:-target/release/udpath}
kept=benches/results/experiments.json
case ${1:-} in
    run)
        shift
        mkdir -p out
        "$udpath" experiment "$@" --json --report out/experiments.html > out/experiments.json.part
        mv out/experiments.json.part out/experiments.json
        "$udpath" report out/experiments.json
        ;;
    docs)
        python3 scripts/merge-experiments.py "$kept" out/experiments*.json
        "$udpath" report "$kept" --docs docs
        ;;
    *)
        echo "experiments: expected run or docs" >&2
        exit 2
        ;;
esac
