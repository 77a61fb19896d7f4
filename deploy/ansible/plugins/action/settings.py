"""Applies settings on a host, and confirms them over a new connection.

    controller                                     host
    module settings  ---------------------------▸  plan; starts the job, which waits a moment
    close the connection                           job: udpath apply --confirm 60s
    new connection: is the job done?  ----------▸  its outcome
    new connection: udpath confirm N  ----------▸  the change stays

Without a new connection nothing is confirmed, and the host reverts the change when the time is up. The connection over which it is
confirmed is made after the change: one that was open before can outlive what keeps new ones out.
"""

import json
import shlex
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.udpath.udpath.plugins.module_utils.udpath import sentence

# Seconds between two attempts to reach a host. Shorter: many hosts at once keep the controller busy. Longer: the task takes longer.
PAUSE = 1
# Seconds that a host has to answer after its deadline, so that the task can say whether it has reverted. Shorter than two attempts to
# connect (10 s each, by Ansible's `timeout`): a host that is back may not be noticed. Longer: a play waits for hosts that are gone for good.
GRACE = 20


class ActionModule(ActionBase):
    """The action `udpath.udpath.settings`."""

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        arguments = self._task.args.copy()
        if "src" in arguments:
            if "settings" in arguments or "plan" in arguments:
                raise AnsibleActionFail("src cannot be used with settings or plan")
            arguments.update(self._read(arguments.pop("src")))
        result = self._execute_module("udpath.udpath.settings", module_args=arguments, task_vars=task_vars)
        job = result.pop("job", None)
        if job is None:
            return result
        confirmed = self._confirmed(job)
        # The plan of a failure would hide its message.
        return confirmed if confirmed.get("failed") else {**result, **confirmed}

    def _read(self, src):
        """The settings or the plan in a file of the controller."""
        path = self._find_needle("files", src)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if not text.lstrip().startswith("{"):
            lines = [line.strip() for line in text.splitlines()]
            return {"settings": [line for line in lines if line and not line.startswith("#")]}
        try:
            return {"plan": json.loads(text)}
        except ValueError as error:
            raise AnsibleActionFail(f"{path} is not a plan: {error}")

    def _confirmed(self, job):
        """What becomes of a job: confirmed, failed, or reverted by the host."""
        deadline = time.monotonic() + job["delay"] + job["confirm"] + GRACE
        # A connection that is made just before the change may be cut off by it.
        time.sleep(job["delay"] + PAUSE)
        done = self._until(deadline, f"cat {job['folder']}/outcome", outcome_of)
        if done is None:
            return self._silent(job)
        outcome = outcome_of(done)
        if outcome is None:
            return failed(f"the apply has not ended within {job['confirm']} s; see `udpath status` on the host")
        if outcome["code"] != 0:
            self._over_new_connection(f"rm -r {job['folder']}")
            return failed(sentence(outcome["err"]))
        applied = json.loads(outcome["out"])
        if applied["id"] is None:
            return {"changed": False}
        return self._confirm(job, applied, deadline)

    def _confirm(self, job, applied, deadline):
        confirm, remove = shlex.join([job["program"], "confirm", str(applied["id"])]), f"rm -r {job['folder']}"
        done = self._until(deadline, confirm if job["keep"] else f"{confirm} && {remove}")
        if done is None:
            return self._silent(job)
        why = sentence(done["stdout"])
        # The answer to an earlier attempt may have been lost.
        if done["rc"] == 0 or why.endswith("is confirmed already"):
            result = {"changed": True, "apply": applied["id"], "changes": applied["changes"]}
            return {**result, **self._kept(job, remove)}
        self._over_new_connection(remove)
        if not why.endswith("has been undone"):
            return failed(why)
        why = f"no new connection to this host within {job['confirm']} s of the change"
        return {**failed(f"{why}: the host has reverted apply {applied['id']}"), "reverted": True}

    def _kept(self, job, remove):
        """Keeps confirmed settings across boots, if that was asked for."""
        if not job["keep"]:
            return {}
        done = self._over_new_connection(f"{shlex.join(job['keep'])}; code=$?; {remove}; exit $code")
        if done is not None and done["rc"] == 0:
            return {}
        why = sentence(done["stdout"]) if done else "the connection failed"
        return {**failed(f"the settings are in effect, but not kept across boots: {why}"), "changed": True}

    def _until(self, deadline, command, accepted=lambda done: True):
        """Runs a command over new connections until its result is accepted; at the deadline the last result, or None."""
        last = None
        while time.monotonic() < deadline:
            last = self._over_new_connection(command) or last
            if last is not None and accepted(last):
                break
            time.sleep(PAUSE)
        return last

    def _over_new_connection(self, command):
        """Runs a command over a new connection, with its stderr in stdout; None if there is no connection."""
        try:
            # A local connection has nothing to lose, and cannot be reset.
            if self._connection.transport != "local":
                self._connection.reset()
            # With a terminal, as ssh gives it one here, there would be no stderr of its own.
            return self._low_level_execute_command(f"({command}) 2>&1")
        except AnsibleConnectionFailure:
            return None

    def _silent(self, job):
        """Nothing was heard from the host, not even after it should have reverted."""
        return failed(
            f"no new connection to this host within {job['confirm']} s of the change, nor in the {GRACE} s after: "
            "the host reverts the change, which was not confirmed, but cannot be asked whether it has"
        )


def outcome_of(done):
    """The outcome that a job has written, if that is what was printed; sudo may print a line before it."""
    lines = [line for line in done["stdout_lines"] if line.startswith("{")]
    return json.loads(lines[0]) if lines else None


def failed(why):
    """A result that changes nothing."""
    return {"failed": True, "changed": False, "msg": why}
