#!/usr/bin/env python3
"""Merges results of `udpath experiment --json` into the one that is committed.

    merge-experiments.py KEPT RESULT...

Each experiment is that of the last result that has it; machine and time are those of the last result with the most experiments.
Host names are removed.
"""

import json
import pathlib
import sys

# The order of the pages.
ORDER = ["ladder", "rps", "receive", "epochs", "overheads", "emulated"]


def main() -> None:
    kept, *results = map(pathlib.Path, sys.argv[1:])
    documents = [json.loads(path.read_text()) for path in [kept, *results] if path.exists()]
    if not documents:
        sys.exit("merge-experiments: no result; run make experiments first")
    # The last of those with the most experiments. `make soak` counts those of the emulated machine, which no other run has.
    measured = [sum(outcome["name"] != "emulated" for outcome in document["experiments"]) for document in documents]
    whole = documents[max(range(len(documents)), key=lambda at: (measured[at], at))]
    experiments = {outcome["name"]: outcome for document in documents for outcome in document["experiments"]}
    known = [name for name in ORDER if name in experiments]
    names = known + sorted(experiments.keys() - set(known))
    whole = whole | {"experiments": [experiments[name] for name in names]}
    whole["machine"] = whole["machine"] | {"hostname": ""}
    whole["seconds"] = sum(outcome["seconds"] for outcome in whole["experiments"])
    whole["command"] = "udpath experiment --json"
    kept.write_text(json.dumps(whole, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
