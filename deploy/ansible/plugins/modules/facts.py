#!/usr/bin/python
"""Facts of a host: the path of a datagram through it, findings, and what udpath has changed."""

DOCUMENTATION = r"""
module: facts
short_description: Gather the path of UDP datagrams through a host, and its findings
description:
  - Adds the facts C(udpath) with the map of C(udpath show --json), its findings, and the output of C(udpath status --json).
  - Reads only, and takes milliseconds, unless I(interval) or I(diagnose) is set.
  - Without root, what only root may read is missing, and so is C(status).
author: The udpath developers (@udpath)
extends_documentation_fragment: udpath.udpath.udpath
options:
  what:
    description: An interface, a UDP port, or a process with UDP sockets, instead of everything.
    type: str
  netns:
    description: A network namespace of the host, as listed by C(ip netns).
    type: str
  interval:
    description: Count for this long, such as C(10s), instead of since boot.
    type: str
  diagnose:
    description: Watch the host for this long, such as C(10s), and add C(diagnosis), the output of C(udpath diagnose --json).
    type: str
  snapshot:
    description: Add C(snapshot), the raw values that the map is made from. It is large.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Gather facts of the server on port 53
  udpath.udpath.facts:
    what: "53"
  become: true

- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ ansible_facts.udpath.findings | map(attribute='id') }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    udpath:
      description: What udpath reads.
      type: dict
      contains:
        version:
          description: The version of the program.
          type: str
          sample: "0.1.0"
        map:
          description: The path of a datagram, stage by stage, with counters (udpath.map/2).
          type: dict
        findings:
          description: The findings of the map, by severity; each has C(id), C(cause), C(evidence) and C(remedies).
          type: list
          elements: dict
        status:
          description: What udpath has changed on this host, and whether it still holds (udpath.status/1). With root only.
          type: dict
        diagnosis:
          description: What is saturated first, and why (udpath.diagnosis/1). With I(diagnose) only.
          type: dict
        snapshot:
          description: Raw values (udpath.snapshot/2). With I(snapshot) only.
          type: dict
"""

import json
import os

from ansible_collections.udpath.udpath.plugins.module_utils.udpath import FINDINGS, Udpath, flags


def main():
    udpath = Udpath({
        "what": {"type": "str"},
        "netns": {"type": "str"},
        "interval": {"type": "str"},
        "diagnose": {"type": "str"},
        "snapshot": {"type": "bool", "default": False},
    })
    netns = flags(udpath.params, netns="--netns")
    what = [udpath.params["what"]] if udpath.params["what"] else []
    shown = udpath.json("show", *what, *netns, *flags(udpath.params, interval="--interval"))
    facts = {"version": udpath.text("--version").split()[-1], "map": shown, "findings": shown["findings"]}
    if os.geteuid() == 0:
        facts["status"] = udpath.json("status", *netns, accept=(0, FINDINGS))
    if udpath.params["diagnose"]:
        duration = flags(udpath.params, diagnose="--duration")
        facts["diagnosis"] = udpath.json("diagnose", *what, *netns, *duration, accept=(0, FINDINGS))
    if udpath.params["snapshot"]:
        facts["snapshot"] = json.loads(udpath.text("show", "--snapshot", *netns))
    udpath.exit_json(changed=False, ansible_facts={"udpath": facts})


if __name__ == "__main__":
    main()
