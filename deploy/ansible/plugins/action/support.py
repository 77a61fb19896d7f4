"""Writes the captures that the module `support` takes to files of the controller."""

import base64
import os
import tempfile

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """The action `udpath.udpath.support`."""

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        arguments = self._task.args.copy()
        dest = arguments.pop("dest", None)
        if not dest:
            raise AnsibleActionFail("missing required arguments: dest")
        result = self._execute_module("udpath.udpath.support", module_args=arguments, task_vars=task_vars)
        content = result.pop("content", None)
        if content is not None:
            name = task_vars["inventory_hostname"].replace(os.sep, "_") + ".tar.gz"
            result["path"] = write(os.path.expanduser(dest), name, base64.b64decode(content))
        return result


def write(folder, name, content):
    """Writes a file whole or not at all, readable by its owner only."""
    path = os.path.join(folder, name)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError as error:
        raise AnsibleActionFail(f"cannot write {path}: {error.strerror}")
    return path
