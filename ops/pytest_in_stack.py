"""Runs pytest in a stack's environment, which does not have it.

`python pytest_in_stack.py SITE_PACKAGES [pytest's arguments]`: the tools' site-packages come last in the path, so that
every package the stack has is the stack's own.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    sys.path.append(sys.argv[1])
    import pytest

    sys.exit(pytest.main(sys.argv[2:]))
