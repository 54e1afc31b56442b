"""Runs pytest in a stack's environment, which does not have it.

`python pytest_in_stack.py SITE_PACKAGES [pytest's arguments]`: the tools' site-packages come last in the path, so that
every package the stack has is the stack's own, or what PYTHONPATH puts before it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this file's folder, whose modules must not be found by their bare names
    sys.path += [str(Path(__file__).resolve().parent.parent), sys.argv[1]]
    import pytest

    sys.exit(pytest.main(sys.argv[2:]))
