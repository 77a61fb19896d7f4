"""Documentation of the options that all modules of this collection have."""


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  program:
    description:
      - The program C(udpath) on the host, by name or path.
    type: path
    default: udpath
requirements:
  - udpath 0.1 on the host
  - Python 3.6 or later on the host
"""
