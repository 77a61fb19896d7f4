"""Runs the program udpath for the modules of this collection.

A module describes its options, asks `Udpath` for text or JSON, and ends with `exit_json`. Where the program fails, the module ends
with the program's own sentence.
"""

import json

from ansible.module_utils.basic import AnsibleModule

# Exit code of verbs that have found something to report; their output is whole.
FINDINGS = 1


class Udpath(AnsibleModule):
    """A module that runs udpath."""

    def __init__(self, options, **more):
        program = {"program": {"type": "path", "default": "udpath"}}
        super().__init__(argument_spec={**program, **options}, supports_check_mode=True, **more)
        self.program = self.get_bin_path(self.params["program"])
        if self.program is None:
            self.fail_json(
                msg=f"{self.params['program']} not found on this host: install udpath, or set `program` to its path"
            )

    def text(self, *arguments, accept=(0,)):
        """Its stdout; ends the module if it exits with another code than those in `accept`."""
        code, out, err = self.run_command([self.program, *arguments])
        for line in err.splitlines():
            if line.startswith("udpath: warning: "):
                self.warn(line[len("udpath: warning: "):])
        if code not in accept:
            self.fail_json(msg=sentence(err) or f"udpath {arguments[0]} exits with {code}", rc=code)
        return out

    def json(self, *arguments, accept=(0,)):
        """Its JSON document."""
        return json.loads(self.text(*arguments, "--json", accept=accept))

    def is_kept(self, plan, *place):
        """Does a boot keep all settings of a plan that changes none?"""
        status = self.json("status", *place, accept=(0, FINDINGS))
        persisted = {entry["setting"]: entry["applied"] for entry in status.get("persisted", [])}
        return all(persisted.get(entry["setting"]) == entry["to"] for entry in plan.get("already", []))


def sentence(err):
    """Why udpath failed: the last line that it wrote to stderr in its own name."""
    own = [line for line in err.splitlines() if line.startswith("udpath: ")]
    return own[-1][len("udpath: "):] if own else err.strip()


def flags(params, **names):
    """Arguments for the options that are set: `flags(params, netns="--netns")`. A list repeats its flag."""
    arguments = []
    for name, flag in names.items():
        value = params[name]
        if value is True:
            arguments.append(flag)
        elif isinstance(value, list):
            for item in value:
                arguments += [flag, item]
        elif value not in (None, False, ""):
            arguments += [flag, str(value)]
    return arguments
