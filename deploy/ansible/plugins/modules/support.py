#!/usr/bin/python
"""Captures of hosts, fetched to the controller.

This module takes the capture, and returns its bytes. The action plugin of the same name writes them to a file of the controller.
"""

DOCUMENTATION = r"""
module: support
short_description: Fetch a capture of a host for analysis elsewhere
description:
  - Takes a capture with C(udpath support), and writes it to the controller as I(dest)/HOST.tar.gz, which C(udpath show --sysroot) reads.
  - Addresses, names and keys are replaced, unless I(redact) is false. Nothing stays on the host.
  - In check mode nothing is taken or written.
author: The udpath developers (@udpath)
extends_documentation_fragment: udpath.udpath.udpath
options:
  dest:
    description: A folder on the controller. It is created if it does not exist. Captures in it are replaced.
    type: path
    required: true
  interval:
    description: Take two snapshots this far apart, such as C(5s), so that rates can be computed.
    type: str
  redact:
    description: Replace addresses, names, command lines and keys.
    type: bool
    default: true
  keep_rss_key:
    description: Keep the RSS keys, which are needed to predict queues, but also allow attackers to target one.
    type: bool
    default: false
  netns:
    description: A network namespace of the host, as listed by C(ip netns).
    type: str
"""

EXAMPLES = r"""
- name: Fetch a capture of each host
  udpath.udpath.support:
    dest: captures
    interval: 5s
  become: true
"""

RETURN = r"""
path:
  description: The capture on the controller.
  returned: changed
  type: str
  sample: captures/resolver3.tar.gz
manifest:
  description: What was read, what is missing and why, and how much was replaced (udpath.support/1).
  returned: changed
  type: dict
"""

import base64
import os

from ansible_collections.udpath.udpath.plugins.module_utils.udpath import Udpath, flags


def main():
    udpath = Udpath({
        "interval": {"type": "str"},
        "redact": {"type": "bool", "default": True},
        "keep_rss_key": {"type": "bool", "default": False},
        "netns": {"type": "str"},
    })
    if udpath.check_mode:
        udpath.exit_json(changed=True)
    more = flags(udpath.params, interval="--interval", keep_rss_key="--keep-rss-key", netns="--netns")
    if not udpath.params["redact"]:
        more.append("--no-redact")
    # This folder is removed when the module ends.
    path = os.path.join(udpath.tmpdir, "capture.tar.gz")
    manifest = udpath.json("support", "--output", path, *more)
    with open(path, "rb") as file:
        content = base64.b64encode(file.read()).decode()
    udpath.exit_json(changed=True, manifest=manifest, content=content)


if __name__ == "__main__":
    main()
