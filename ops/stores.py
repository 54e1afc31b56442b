"""The store commands: stores made of stores. What they read and write is named, so that a container has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.flags import absolute, to_flags
from ops.stack.stages import STACK_OF
from ops.stage import StageCall
from ops.stages import where


def merge(out: str, parts: Sequence[str], given: dict[str, Any]) -> None:
    """Run `store merge`.

    Args:
        out: folder of the new store.
        parts: the stores.
        given: `runtime` and `gpus`, see `ops.stages.extract`.
    """
    runtime, _ = where(given, STACK_OF["store"])
    folder, stores = absolute(out), tuple(map(absolute, parts))
    arguments = ("merge", str(folder), *map(str, stores))
    runtime.finish(StageCall(stage="store", arguments=arguments, reads=stores, writes=(folder,)))


def from_one(command: str, store: str, given: dict[str, Any]) -> None:
    """Run a store command that reads one store.

    Args:
        command: its name.
        store: the folder.
        given: its flags, see `ops.stages.extract`.
    """
    runtime, given = where(given, STACK_OF["store"])
    paths = {name: absolute(given[name]) for name in ("ids", "output_dir", "json") if given.get(name)}
    folder = absolute(store)
    call = StageCall(
        stage="store",
        arguments=(command, str(folder), *to_flags(given | paths)),
        reads=(folder, *_named(paths, "ids")),
        writes=(*_named(paths, "output_dir"), *(file.parent for file in _named(paths, "json"))),
    )
    runtime.finish(call)


def export(store: str, given: dict[str, Any]) -> None:
    """Run `store export`, whose folder appears beside a temporary one: what is written is the folder around it.

    Args:
        store: the folder.
        given: its flags, see `ops.stages.extract`.
    """
    runtime, given = where(given, STACK_OF["store"])
    folder, given = absolute(store), {**given, "output_dir": given["output_dir"] and absolute(given["output_dir"])}
    arguments = ("export", str(folder), *to_flags(given))
    around = (given["output_dir"].parent,) if given["output_dir"] else ()
    runtime.finish(StageCall(stage="store", arguments=arguments, reads=(folder,), writes=around))


def _named(paths: dict[str, Path], name: str) -> tuple[Path, ...]:
    return (paths[name],) if name in paths else ()
