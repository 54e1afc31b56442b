"""A whole stack in miniature: one package of a few kilobytes from the index, and a series that adds a file to it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ops.paths import CHECKOUT
from ops.stack.lockfile import Lock, parse_entries
from ops.stack.model import Stack, load

PACKAGE = "mdurl"
TOML = """\
# A comment that must survive.
name = "small"
patches = "mdurl-0.1.2"

[cpu]
python = ">=3.10,<3.14"
requirements = ["mdurl==0.1.2"]
installed-gib = 1

[cuda]
python = "==3.12.*"
requirements = []
installed-gib = 1

[cuda.vllm]  # pinned
version = "0.16.0"
sha256 = "f066b2a2f8597a4a3ada8fbbfd122b59086864b2260ca42dc81bf9fb57af0c42"
"""
PATCH = """\
Description: A file that was not there
Author: Eyas
Forwarded: not-needed
Last-Update: 2026-11-30
X-Eyas-Test: tests/ops/test_local.py::test_an_installed_stack_is_patched
---
--- /dev/null
+++ b/{path}
@@ -0,0 +1 @@
+PATCHED = True
"""


def locked_lines(name: str) -> str:
    """The lines that tests/dev.lock has for a package."""
    entries = parse_entries((CHECKOUT / "tests" / "dev.lock").read_text(encoding="utf-8"), "dev.lock")
    text = Lock("", tuple(entry for entry in entries if entry.name == name)).text()
    return text.split("\n", 1)[1]


def write_series(folder: Path, path: str) -> None:
    """A series whose only patch adds the file at `path`."""
    folder.mkdir(parents=True)
    (folder / "series").write_text("0001-add-a-file.patch\n", encoding="utf-8")
    (folder / "0001-add-a-file.patch").write_text(PATCH.format(path=path), encoding="utf-8")
    patched = hashlib.sha256(b"PATCHED = True\n").hexdigest()
    (folder / "files.sha256").write_text(f"upstream absent {path}\npatched  {patched} {path}\n", encoding="utf-8")


def write(checkout: Path) -> Stack:
    """Write the stack under `checkout`, its locks fitting its stack.toml."""
    folder = checkout / "stacks" / "small"
    folder.mkdir(parents=True)
    (folder / "stack.toml").write_text(TOML, encoding="utf-8")
    write_series(checkout / "patches" / "mdurl-0.1.2", "mdurl/_patched.py")
    stack = load(folder)
    cpu = parse_entries(locked_lines(PACKAGE), "cpu.lock")
    for accelerator, entries in (("cpu", cpu), ("cuda", ())):
        text = Lock(stack.accelerator(accelerator).inputs_digest(), entries).text()
        stack.lock(accelerator).write_text(text, encoding="utf-8")
    return stack
