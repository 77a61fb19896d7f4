#!/usr/bin/python
"""Search for settings that raise a server's rate, and fail where the server is slower with them."""

DOCUMENTATION = r"""
module: boost
short_description: Search for settings that raise the rate of a running UDP server
description:
  - Runs C(udpath boost) on the host, which measures settings around a running server in interleaved trials, and keeps those that help.
  - Fails if the gain that is measured at the end is shown to be below I(minimum). What was kept is undone then. With C(serial) and
    C(any_errors_fatal) the play stops there, before the next hosts.
  - Takes minutes. In check mode nothing is measured.
author: The udpath developers (@udpath)
extends_documentation_fragment: udpath.udpath.udpath
options:
  port:
    description: The UDP port of the server.
    type: int
  pid:
    description: A process of the server.
    type: int
  unit:
    description: The systemd unit of the server, such as C(nsd.service).
    type: str
  load:
    description:
      - The load of each trial, as words or one string, as C(udpath load) takes it.
      - Trials take the server's capacity; use I(live) on servers with clients.
      - The values of C(--secret), C(--auth), C(--priv) and C(--community) appear in no result and no log of the host. Set C(no_log) for
        the task to hide them from the controller's output too, or use C(--secret-file).
    type: raw
  live:
    description: Send nothing, and measure what clients send.
    type: bool
    default: false
  keep:
    description: Apply what helps, across restarts and boots where that is possible.
    type: bool
    default: false
  minimum:
    description: The smallest gain that does not fail, as a ratio of the rate with and without the settings.
    type: float
    default: 1.0
  budget:
    description: Begin no further comparison after this time, such as C(10m).
    type: str
  duration:
    description: Length of a trial, such as C(1s).
    type: str
  bound:
    description: Half-width of the interval, in per cent, at which a comparison ends.
    type: float
  blocks:
    description: The most blocks of trials of a comparison.
    type: int
  allow:
    description: What may be tried, besides what is always.
    type: list
    elements: str
    choices: [security, link-reset, config, restart]
    default: []
  restart:
    description: How the server is restarted where systemd does not run it, a command for C(/bin/sh).
    type: str
  netns:
    description: With I(port), the network namespace of the server.
    type: str
  from:
    description: The network namespace of the host that sends the load.
    type: str
"""

EXAMPLES = r"""
# The first host alone, then the others; a loss on one host stops the play.
- hosts: resolvers
  serial: [1, "25%", "100%"]
  any_errors_fatal: true
  become: true
  tasks:
    - name: Keep what helps
      udpath.udpath.boost:
        unit: unbound.service
        live: true
        keep: true
        budget: 30m
"""

RETURN = r"""
gain:
  description: The rate with what helps over the rate as found, and its 95 % interval.
  returned: when it was measured
  type: dict
  sample: {"ratio": 1.31, "low": 1.24, "high": 1.39}
helps:
  description: What helps, with its settings.
  returned: when it was measured
  type: list
  elements: dict
applies:
  description: The numbers of the applies that keep it, for C(udpath undo).
  returned: when it was measured
  type: list
  elements: int
result:
  description: The whole result (udpath.boost/2), without profiles.
  returned: when it was measured
  type: dict
"""

import json
import shlex

from ansible_collections.udpath.udpath.plugins.module_utils.udpath import Udpath, flags

SERVER = ("port", "pid", "unit")

# Options of a load whose value is a secret.
SECRETS = ("--secret", "--auth", "--priv", "--community")


def main():
    udpath = Udpath(
        {
            "port": {"type": "int"},
            "pid": {"type": "int"},
            "unit": {"type": "str"},
            "load": {"type": "raw"},
            "live": {"type": "bool", "default": False},
            "keep": {"type": "bool", "default": False},
            "minimum": {"type": "float", "default": 1.0},
            "budget": {"type": "str"},
            "duration": {"type": "str"},
            "bound": {"type": "float"},
            "blocks": {"type": "int"},
            "allow": {
                "type": "list",
                "elements": "str",
                "choices": ["security", "link-reset", "config", "restart"],
                "default": [],
            },
            "restart": {"type": "str"},
            "netns": {"type": "str"},
            "from": {"type": "str"},
        },
        # The words of a load may have secrets.
        no_log=True,
        mutually_exclusive=[SERVER],
        required_one_of=[SERVER],
    )
    params = udpath.params
    if bool(params["load"]) == params["live"]:
        udpath.fail_json(msg="set either `load`, or `live: true`")
    if udpath.check_mode:
        udpath.exit_json(changed=False, skipped=True, msg="check mode: nothing was measured")
    load = [] if params["live"] else words(params["load"])
    udpath.no_log_values.update(secrets(load))
    # --load takes everything behind it.
    traffic = ["--live"] if params["live"] else ["--load", *load]
    judge(udpath, json.loads(udpath.text("boost", "--json", "--no-profile", *arguments(params), *traffic)))


def arguments(params):
    """What describes the server and the search."""
    return flags(
        params,
        port="--port",
        pid="--pid",
        unit="--unit",
        keep="--keep",
        budget="--budget",
        duration="--duration",
        bound="--bound",
        blocks="--blocks",
        allow="--allow",
        restart="--restart",
        netns="--netns",
        **{"from": "--from"},
    )


def words(load):
    """The words of a load."""
    return shlex.split(load) if isinstance(load, str) else [str(word) for word in load]


def secrets(load):
    """The secrets among the words of a load; a password follows the name of its hash or cipher."""
    found = []
    for word, following in zip(load, [*load[1:], ""]):
        option, joined, value = word.partition("=")
        if option in SECRETS:
            value = value if joined else following
            found += [value, value.partition(":")[2]]
    return [value for value in found if value]


def judge(udpath, result):
    """Ends the module; a loss is undone."""
    gain, running = result["gain"], result["running"]
    applies = running.get("applies", [])
    found = {"gain": gain, "helps": running["kept"], "result": result}
    minimum = udpath.params["minimum"]
    if gain["high"] >= minimum:
        udpath.exit_json(changed=bool(applies), applies=applies, **found)
    for apply in reversed(applies):
        udpath.text("undo", str(apply))
    shown = f"{gain['ratio']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})"
    undone = "; what was kept is undone" if applies else ""
    udpath.fail_json(msg=f"gain {shown} of the rate as found is below {minimum:g}{undone}", applies=[], **found)


if __name__ == "__main__":
    main()
