#!/usr/bin/python
"""Settings of a host, applied so that a host which they cut off reverts them.

This module plans, and starts the apply in the background. The action plugin of the same name runs it, and confirms.
"""

DOCUMENTATION = r"""
module: settings
short_description: Change settings of a host, confirmed over a new connection
description:
  - Gives settings the values that you name, with C(udpath apply --confirm). What has its value already is left alone.
  - After the change, a B(new) connection to the host is made, and the change is confirmed over it. A host that cannot be reached any more
    reverts the change when I(confirm) seconds are over, and the task fails for this host, and says so.
  - In check mode, and with C(--diff), the result is that of C(udpath plan).
author: The udpath developers (@udpath)
extends_documentation_fragment: udpath.udpath.udpath
options:
  settings:
    description:
      - Settings with their values, as C(udpath plan --set) accepts them. See U(https://github.com/udpath/udpath/blob/main/docs/settings.md).
    type: list
    elements: str
  src:
    description:
      - A file on the controller. One setting with its value per line; empty lines and lines that start with C(#) are ignored.
      - Or a plan as JSON (udpath.plan/2), as written by C(udpath plan --json) or C(udpath boost).
    type: path
  plan:
    description: A plan as data (udpath.plan/2), such as the I(plan) that an earlier task returned in check mode.
    type: dict
  confirm:
    description:
      - Seconds after which the host reverts the change if it was not confirmed, 10 to 86400.
      - Shorter, and a busy host may be too slow to confirm; longer, and a host that was cut off is away for that long.
    type: int
    default: 60
  persist:
    description:
      - Keep the settings across boots, with C(udpath apply --persist), once they are confirmed.
    type: bool
    default: false
  reason:
    description: Why, for the journal on the host.
    type: str
    default: ""
  allow:
    description: What may be changed even though it lowers security, or C(config), C(restart) and C(security). See C(udpath apply --help).
    type: list
    elements: str
    default: []
  ignore_conflicts:
    description: Programs whose conflicting settings are ignored.
    type: list
    elements: str
    choices: [irqbalance, tuned]
    default: []
  restart:
    description: How a server whose configuration changes is restarted, a command for C(/bin/sh).
    type: str
  netns:
    description: A network namespace of the host, as listed by C(ip netns).
    type: str
notes:
  - One of I(settings), I(src) and I(plan) is required.
  - The user whom the connection becomes must be root.
"""

EXAMPLES = r"""
- name: Spread packets over four CPUs
  udpath.udpath.settings:
    settings:
      - eth0:rps/rx-*=0-3
      - sysctl:net.core.rmem_max=8388608
  become: true

- name: Apply a plan that a colleague has made, and give hosts two minutes
  udpath.udpath.settings:
    src: files/resolvers.json
    confirm: 120
    persist: true
  become: true
"""

RETURN = r"""
plan:
  description:
    - The plan (udpath.plan/2), with the changes and what has its value already.
    - Of a server's files it has the keys and values that change, and SHA-256 sums; no other text, which may have secrets.
  returned: success
  type: dict
apply:
  description: The number of the apply in the host's journal, for C(udpath undo).
  returned: changed
  type: int
  sample: 3
changes:
  description: Each changed setting with its old and new value.
  returned: changed
  type: list
  elements: dict
  sample: [{"setting": "eth0:rps/rx-0", "from": "none", "to": "0-3"}]
reverted:
  description: The host has reverted the change, since it was not confirmed.
  returned: when the host could not be reached in time
  type: bool
"""

import json
import os
import subprocess
import sys
import tempfile

from ansible_collections.udpath.udpath.plugins.module_utils.udpath import Udpath, flags

# Seconds from the start of the job to the change. Shorter: the answer of this module may still be on its way when the change cuts
# the connection. Longer: every task takes longer.
DELAY = 1

# Shortest and longest time to confirm, seconds. The longest is that of `udpath apply --confirm`.
CONFIRM = range(10, 86401)

# The job: applies, and writes the outcome where the action plugin finds it.
JOB = """
import json, os, subprocess, sys, time
folder, delay, arguments = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
time.sleep(delay)
done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
with open(folder + "/unfinished", "w") as file:
    json.dump({"code": done.returncode, "out": done.stdout, "err": done.stderr}, file)
os.rename(folder + "/unfinished", folder + "/outcome")
"""


def start(udpath, request):
    """Starts the apply as a process that outlives this module and its connection. Returns what the action plugin needs to know."""
    seconds = udpath.params["confirm"]
    folder = tempfile.mkdtemp(prefix="udpath-")
    if udpath.params["plan"]:
        request = [write_plan(udpath, folder), *request[1:]]
    apply = [udpath.program, "apply", *request]
    subprocess.Popen(
        [sys.executable, "-c", JOB, folder, str(DELAY), *apply, "--confirm", f"{seconds}s", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    keep = [*apply, "--persist", "--json"] if udpath.params["persist"] else None
    return {"folder": folder, "delay": DELAY, "confirm": seconds, "program": udpath.program, "keep": keep}


def write_plan(udpath, folder):
    path = os.path.join(folder, "plan.json")
    with open(path, "w") as file:
        json.dump(udpath.params["plan"], file)
    return path


def main():
    udpath = Udpath(
        {
            "settings": {"type": "list", "elements": "str"},
            "plan": {"type": "dict"},
            "confirm": {"type": "int", "default": 60},
            "persist": {"type": "bool", "default": False},
            "reason": {"type": "str", "default": ""},
            "allow": {"type": "list", "elements": "str", "default": []},
            "ignore_conflicts": {
                "type": "list",
                "elements": "str",
                "choices": ["irqbalance", "tuned"],
                "default": [],
            },
            "restart": {"type": "str"},
            "netns": {"type": "str"},
        },
        mutually_exclusive=[("settings", "plan")],
        required_one_of=[("settings", "plan")],
    )
    if udpath.params["confirm"] not in CONFIRM:
        udpath.fail_json(msg=f"confirm is {udpath.params['confirm']}: expected {CONFIRM[0]} to {CONFIRM[-1]} seconds")
    request = flags(
        udpath.params,
        settings="--set",
        reason="--reason",
        allow="--allow",
        ignore_conflicts="--ignore-conflict",
        restart="--restart",
        netns="--netns",
    )
    if udpath.params["plan"]:
        request = [write_plan(udpath, udpath.tmpdir), *request]
    plan = udpath.json("plan", *request)
    result = {"changed": bool(plan["changes"]), "plan": plan}
    if udpath._diff:
        result["diff"] = {"prepared": udpath.text("plan", *request)}
    if result["changed"]:
        if not udpath.check_mode:
            result["job"] = start(udpath, request)
    elif udpath.params["persist"] and not udpath.is_kept(plan, *flags(udpath.params, netns="--netns")):
        # Files only, which cut nothing off.
        result["changed"] = True
        if not udpath.check_mode:
            result["apply"] = udpath.json("apply", *request, "--persist")["id"]
    udpath.exit_json(**result)


if __name__ == "__main__":
    main()
