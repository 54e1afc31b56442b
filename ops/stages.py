"""The stage commands: which runtime, and which flags; without flags about data or target, the demo."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ops import demo
from ops.container.choice import choose
from ops.local import ensure
from ops.stack.model import STACKS, load
from ops.stage import LocalRuntime, StageCall, become

EXTRACT = "extract"
# Flags that name files and folders. They reach a stage as absolute paths: it may run where the user does not stand.
PATHS = ("input", "model_path", "prepared_data", "output_dir")


def extract(given: dict[str, Any]) -> None:
    """Run the extract stage with the flags that were given.

    Args:
        given: flag names with underscores to values; None or False where not given. `runtime` and `gpus` say where.
    """
    runtime, given = where(given)
    shown = given["dry_run"] and not isinstance(runtime, LocalRuntime)
    flags = given | {"dry_run": False} if shown else given
    if _about_data(given, "model_path", "prepared_data", "output_dir"):
        call = extract_call(flags)
    else:
        prepared = demo.RUN / demo.DATA if shown else demo.prepare(runtime, [])
        call = demo.extract_call(prepared, to_flags(flags), _tp_size(given))
    if shown:
        runtime.show(call)
    else:
        runtime.finish(call)


def extract_call(given: dict[str, Any]) -> StageCall:
    """The call of extract for the user's own data and target."""
    given = _absolute(given)
    prepared = _path(given["prepared_data"])
    return StageCall(
        stage="extract",
        arguments=tuple(to_flags(given)),
        reads=(*_target(given), *prepared, *(part for path in prepared for part in demo.header_of(path))),
        writes=_path(given["output_dir"]),
        offline=_is_local(given["model_path"]),
        tp_size=_tp_size(given),
    )


def prepare(given: dict[str, Any]) -> None:
    """Run the prepare stage with the flags that were given; see `extract`."""
    runtime, given = where(given)
    if not _about_data(given, "input", "model_path", "output_dir"):
        demo.prepare(runtime, to_flags(given))
        return
    given = _absolute(given)
    call = StageCall(
        stage="prepare",
        arguments=tuple(to_flags(given)),
        reads=(*map(Path, given["input"] or []), *_target(given)),
        writes=_path(given["output_dir"]),
        offline=_is_local(given["model_path"]),
    )
    runtime.finish(call)


def verify(store: str, given: dict[str, Any]) -> None:
    """Run the verify stage.

    Args:
        store: the folder to check.
        given: see `extract`.
    """
    runtime, given = where(given)
    folder, given = absolute(store), _absolute(given)
    target = _target(given)
    if given["reference"] and not target and not isinstance(runtime, LocalRuntime):
        target = _path(_target_of(folder))
    call = StageCall(
        stage="verify",
        arguments=(str(folder), *to_flags(given)),
        reads=(folder, *target),
        offline=_is_local(given["model_path"]),
    )
    runtime.finish(call)


def shell(given: dict[str, Any]) -> None:
    """Become a shell in the image, with the mounts of an extract call with these flags; without any, of the demo's."""
    from ops.container import commands

    flags = {name: value for name, value in given.items() if name != "gpus"}
    call = extract_call(flags) if any(flags.values()) else demo.extract_call(demo.RUN / demo.DATA, [], 1)
    commands.shell(load(STACKS / EXTRACT), call, given["gpus"])


def bench(module: str, *arguments: str) -> None:
    """Become a benchmark, run on the demo.

    Args:
        module: the benchmark's module; it takes --model-path and --prepared-data.
        arguments: more of them.
    """
    runtime = LocalRuntime(load(STACKS / EXTRACT))
    prepared = demo.prepare(runtime, [])
    where = ["--model-path", str(demo.ensure_target(runtime)), "--prepared-data", str(prepared)]
    become([str(runtime.environment / "bin" / "python"), "-m", module, *where, *arguments], offline=True)


def bench_alone(module: str, *arguments: str) -> None:
    """Become a benchmark that needs neither target nor data."""
    environment = ensure(load(STACKS / EXTRACT))
    become([str(environment / "bin" / "python"), "-m", module, *arguments], offline=True)


def to_flags(given: dict[str, Any]) -> list[str]:
    """Flags of a stage from those given to a task: only what was given, a list of layers as separate values."""
    flags: list[str] = []
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False or value == []:
            continue
        if value is True:
            flags.append(flag)
        elif name == "layer_ids":
            flags += [flag, *re.split(r"[\s,]+", value.strip(" ,"))]
        else:
            # With '=' a value that starts with a dash stays a value.
            flags += [f"{flag}={item}" for item in (value if isinstance(value, list) else [value])]
    return flags


def absolute(path: str) -> Path:
    """A path from the root, without `..`: a container has it as its own."""
    here = Path(path)
    return here.resolve() if ".." in here.parts else here.absolute()


def where(given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The runtime that two of the flags ask for, and the flags of the stage itself."""
    stage = {name: value for name, value in given.items() if name not in {"runtime", "gpus"}}
    return choose(load(STACKS / EXTRACT), given.get("runtime"), given.get("gpus")), stage


def _absolute(given: dict[str, Any]) -> dict[str, Any]:
    changed = dict(given)
    for name in PATHS:
        value = given.get(name)
        if isinstance(value, list):
            changed[name] = [str(absolute(item)) for item in value]
        elif value and not (name == "model_path" and _is_hub_name(value)):
            changed[name] = str(absolute(value))
    return changed


def _about_data(given: dict[str, Any], *names: str) -> bool:
    return any(given[name] for name in names)


def _is_hub_name(model_path: str) -> bool:
    """Whether it can only be a hub's owner/name, as the stage itself decides."""
    is_name = model_path.count("/") == 1 and not model_path.startswith((".", "/", "~"))
    return is_name and not Path(model_path).is_dir()


def _is_local(model_path: str | None) -> bool:
    # With no --model-path the store names its target; only one given as a hub's name may need the hub.
    return model_path is None or not _is_hub_name(model_path)


def _target(given: dict[str, Any]) -> tuple[Path, ...]:
    return _path(given["model_path"]) if _is_local(given["model_path"]) else ()


def _path(value: str | None) -> tuple[Path, ...]:
    return (Path(value),) if value else ()


def _tp_size(given: dict[str, Any]) -> int:
    # A value that is no number is the stage's to refuse.
    value = str(given.get("tp_size") or "1")
    return max(1, int(value)) if value.isdigit() else 1


def _target_of(store: Path) -> str | None:
    """The target that a store's manifest names: a container is given no folder that is not named.

    A store that has none, or none that can be read, is the stage's to refuse.
    """
    for folder in (store, store / "store"):
        try:
            manifest = json.loads((folder / "manifest.json").read_bytes())
            return str(manifest["info"]["model_path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
