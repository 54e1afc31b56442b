"""The stage commands: which runtime, and which flags; without flags about data or target, the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ops import demo
from ops.container.choice import choose
from ops.flags import (
    Given,
    absolute,
    devices,
    input_place,
    is_given,
    is_hub_data,
    is_local,
    paths,
    target,
    to_flags,
    with_absolute_paths,
)
from ops.local import ensure
from ops.stack.model import STACKS, load
from ops.stack.stages import EXTRACT, STACK_OF
from ops.stage import LocalRuntime, StageCall, become


def extract(given: Given) -> None:
    """Run the extract stage with the flags that were given.

    Args:
        given: see `ops.flags.Given`; `runtime` and `gpus` say where.
    """
    runtime, given = where(given, STACK_OF["extract"])
    shown = given["dry_run"] and not isinstance(runtime, LocalRuntime)
    flags = given | {"dry_run": False} if shown else given
    if is_given(given, "model_path", "prepared_data", "output_dir"):
        call = extract_call(flags)
    else:
        prepared = demo.RUN / demo.DATA if shown else demo.prepare(runtime, [])
        call = demo.extract_call(prepared, to_flags(flags), devices(given))
    if shown:
        runtime.show(call)
    else:
        runtime.finish(call)


def extract_call(given: Given) -> StageCall:
    """The call of extract for the user's own data and target."""
    given = with_absolute_paths(given)
    prepared = paths(given["prepared_data"])
    return StageCall(
        stage="extract",
        arguments=tuple(to_flags(given)),
        reads=(*target(given), *prepared, *(part for path in prepared for part in demo.header_of(path))),
        writes=paths(given["output_dir"]),
        offline=is_local(given["model_path"]),
        tp_size=devices(given),
    )


def prepare(given: Given) -> None:
    """Run the prepare stage with the flags that were given; see `extract`."""
    runtime, given = where(given, STACK_OF["prepare"])
    if not is_given(given, "input", "model_path", "output_dir"):
        demo.prepare(runtime, to_flags(given))
        return
    given = with_absolute_paths(given)
    places = [input_place(value)[0] for value in given["input"] or []]
    call = StageCall(
        stage="prepare",
        arguments=tuple(to_flags(given)),
        reads=(*(Path(place) for place in places if not is_hub_data(place)), *target(given)),
        writes=paths(given["output_dir"]),
        offline=is_local(given["model_path"]) and not any(map(is_hub_data, places)),
    )
    runtime.finish(call)


def verify(store: str, given: Given) -> None:
    """Run the verify stage.

    Args:
        store: the folder to check.
        given: see `extract`.
    """
    runtime, given = where(given, STACK_OF["verify"])
    folder, given = absolute(store), with_absolute_paths(given)
    reads = target(given)
    if given["reference"] and not reads and not isinstance(runtime, LocalRuntime):
        reads = paths(_target_of(folder))
    call = StageCall(
        stage="verify",
        arguments=(str(folder), *to_flags(given)),
        reads=(folder, *reads),
        offline=is_local(given["model_path"]),
    )
    runtime.finish(call)


def shell(given: Given) -> None:
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


def bench_target(module: str, *arguments: str) -> None:
    """Become a benchmark that needs the demo's target and makes its own data.

    Args:
        module: the benchmark's module; it takes --model-path.
        arguments: more of its flags.
    """
    runtime = LocalRuntime(load(STACKS / EXTRACT))
    target = demo.ensure_target(runtime)
    become(
        [str(runtime.environment / "bin" / "python"), "-m", module, f"--model-path={target}", *arguments], offline=True
    )


def bench_alone(module: str, *arguments: str, stack: str = EXTRACT) -> None:
    """Become a benchmark that needs neither target nor data.

    Args:
        module: the benchmark's module.
        arguments: its flags.
        stack: name of the stack that it runs in.
    """
    environment = ensure(load(STACKS / stack))
    become([str(environment / "bin" / "python"), "-m", module, *arguments], offline=True)


def where(given: Given, stack: str) -> tuple[Any, Given]:
    """The runtime that two of the flags ask for, and the flags of the stage itself.

    Args:
        given: flags of a task.
        stack: name of the stack that the command's stage runs in, see `ops.stack.stages`.
    """
    stage = {name: value for name, value in given.items() if name not in {"runtime", "gpus"}}
    return choose(load(STACKS / stack), given.get("runtime"), given.get("gpus")), stage


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
