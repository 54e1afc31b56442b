"""The digest of the code that a stage runs: its own folder, and what that imports of the other stages' code.

So a change to training does not make states be extracted again. Modules that are named in a text only ("pipeline.x.y",
as a worker's class is to vLLM) count as imported.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from ops.paths import CHECKOUT

_NAMED = re.compile(r"pipeline(\.\w+)+")


def code_digest(stage: str, checkout: Path = CHECKOUT) -> str:
    """Hex sha256 over name and content of every file that `stage_files` names."""
    digest = hashlib.sha256()
    for path in sorted(stage_files(stage, checkout), key=lambda path: path.relative_to(checkout).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(checkout).as_posix()}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()


def stage_files(stage: str, checkout: Path = CHECKOUT) -> set[Path]:
    """The Python files of a stage's folder, and all they import of `pipeline`, directly or not."""
    waiting = list((checkout / "pipeline" / stage).rglob("*.py"))
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path, checkout)
    return found


def _imported(path: Path, checkout: Path) -> Iterator[Path]:
    package = path.relative_to(checkout).parent.parts
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        for name in _names(node, package):
            yield from _files(name.split("."), checkout)


def _names(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """Dotted names that a piece of code may import; of those that are no modules nothing comes."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        around = package[: len(package) - node.level + 1] if node.level else ()
        base = ".".join([*around, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.fullmatch(node.value):
        yield node.value


def _files(parts: list[str], checkout: Path) -> Iterator[Path]:
    """The file of a module, and of the packages around it; of a name in a module, the module's."""
    if parts[0] != "pipeline":
        return
    for count in range(1, len(parts) + 1):
        place = checkout.joinpath(*parts[:count])
        yield from (file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file())
