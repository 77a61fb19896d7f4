#!/usr/bin/python
"""Socket options that unmodified programs get at each bind."""

DOCUMENTATION = r"""
module: policy
short_description: Set socket options of programs that cannot be changed
description:
  - Sets options of the UDP sockets of a systemd unit's or a cgroup's programs, at each bind, with C(udpath policy).
  - In check mode, and with C(--diff), the result is that of C(udpath plan).
author: The udpath developers (@udpath)
extends_documentation_fragment: udpath.udpath.udpath
options:
  target:
    description:
      - A systemd unit, such as C(nsd.service), or the path of a cgroup, as in C(/proc/PID/cgroup).
      - With a port, as in C(nsd.service:53), only binds to that port.
    type: str
    required: true
  options:
    description:
      - The options and their values, such as C(receive-buffer) and C(8M). C(none) leaves an option to the program.
      - Required if I(state=present). Options that are not named stay as they are.
    type: dict
  state:
    description: C(absent) removes all policies of the target.
    type: str
    choices: [present, absent]
    default: present
  persist:
    description:
      - Keep the options across boots.
    type: bool
    default: false
  reason:
    description: Why, for the journal on the host.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Give the collector room for bursts
  udpath.udpath.policy:
    target: collector.service
    options:
      receive-buffer: 8M
      reuseport: true
    persist: true
  become: true

- name: Leave its sockets to the program again
  udpath.udpath.policy:
    target: collector.service
    state: absent
  become: true
"""

RETURN = r"""
apply:
  description: The number of the apply in the host's journal, for C(udpath undo).
  returned: when options were set
  type: int
changes:
  description: Each changed setting with its old and new value.
  returned: when options were set
  type: list
  elements: dict
policies:
  description: The policies of the target afterwards, and whether each has its effect.
  returned: success
  type: list
  elements: dict
  sample: [{"option": "receive-buffer", "value": "8388608", "state": "in-effect"}]
"""

from ansible_collections.udpath.udpath.plugins.module_utils.udpath import FINDINGS, Udpath, flags


def word(value):
    """A value of YAML as udpath writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def present(udpath):
    """Sets the options."""
    target, more = udpath.params["target"], flags(udpath.params, persist="--persist", reason="--reason")
    options = [f"{name}={word(value)}" for name, value in udpath.params["options"].items()]
    wanted = [argument for option in options for argument in ("--set", f"policy:{target}/{option}")]
    plan = udpath.json("plan", *wanted)
    result = {"changed": bool(plan["changes"]) or (udpath.params["persist"] and not udpath.is_kept(plan))}
    if udpath._diff:
        result["diff"] = {"prepared": udpath.text("plan", *wanted)}
    if result["changed"] and not udpath.check_mode:
        applied = udpath.json("policy", "set", target, *options, *more)
        result["apply"], result["changes"] = applied["id"], applied["changes"]
    return result


def absent(udpath):
    """Removes all policies."""
    target = udpath.params["target"]
    before = policies(udpath)
    result = {"changed": bool(before)}
    if udpath._diff:
        lines = [f"{policy['setting']}={policy['value']}\n" for policy in before]
        result["diff"] = {"before": "".join(lines), "after": ""}
    if before and not udpath.check_mode:
        udpath.text("policy", "remove", target)
    return result


def policies(udpath):
    """The target's policies."""
    return udpath.json("policy", "show", udpath.params["target"], accept=(0, FINDINGS))["options"]


def main():
    udpath = Udpath(
        {
            "target": {"type": "str", "required": True},
            "options": {"type": "dict"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "persist": {"type": "bool", "default": False},
            "reason": {"type": "str", "default": ""},
        },
        required_if=[("state", "present", ["options"])],
    )
    result = present(udpath) if udpath.params["state"] == "present" else absent(udpath)
    udpath.exit_json(policies=policies(udpath), **result)


if __name__ == "__main__":
    main()
