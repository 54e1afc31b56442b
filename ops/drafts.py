"""The commands from prompts to a draft: regenerate, train, estimate, evaluate and export.

Without flags about data or target they work on the demo: its prompts, and what the commands before left in its folder.
"""

from __future__ import annotations

from typing import Any

from ops import demo
from ops.flags import Given, devices, folder_of, is_given, is_local, paths, target, to_flags, with_absolute_paths
from ops.stack.stages import STACK_OF
from ops.stage import LocalRuntime, StageCall
from ops.stages import where


def regenerate(given: Given) -> None:
    """Have the target answer prompts itself.

    Args:
        given: see `ops.stages.extract`.
    """
    runtime, given = where(given, STACK_OF["regenerate"])
    if not is_given(given, "input", "model_path", "output_dir"):
        demo.ensure_target(runtime)
        given = _on_demo(given, input=[str(demo.PROMPTS)], output_dir=demo.REGENERATED)
    runtime.finish(_call("regenerate", given, "input"))


def train(given: Given) -> None:
    """Train a draft from a store; see `regenerate`."""
    runtime, given = where(given, STACK_OF["train"])
    shown = given["dry_run"] and not isinstance(runtime, LocalRuntime)
    if not is_given(given, "store", "model_path", "output_dir"):
        # What is only shown needs no store that is there.
        if not shown:
            demo.states(runtime, demo.PROMPTS, demo.REGENERATED)
        given = _on_demo(given, store=demo.store_of(demo.REGENERATED), output_dir=demo.TRAIN)
    call = _call(
        "train",
        given | {"dry_run": given["dry_run"] and not shown},
        "store",
        "init_from",
        "draft_config",
        shared_by="nproc",
    )
    (runtime.show if shown else runtime.finish)(call)


def estimate(given: Given) -> None:
    """Compute a draft's acceptance length from held-out states; see `regenerate`."""
    runtime, given = where(given, STACK_OF["estimate"])
    if not is_given(given, "store", "model_path", "draft", "output_dir"):
        store = demo.states(runtime, demo.HELD_OUT_PROMPTS, demo.HELD_OUT)
        given = _on_demo(given, store=store, draft=demo.TRAIN / "best", output_dir=demo.ESTIMATE)
    runtime.finish(_call("estimate", given, "store", "draft"))


def evaluate(given: Given) -> None:
    """Measure drafts where they are served; see `regenerate`."""
    runtime, given = where(given, STACK_OF["evaluate"])
    if not is_given(given, "model_path", "draft", "input", "output_dir", "estimate"):
        demo.ensure_target(runtime)
        drafts = [f"{name}={demo.TRAIN / folder}" for name, folder in demo.DRAFTS.items()]
        estimates = [str(path) for path in (demo.ESTIMATE / "estimate.json",) if path.is_file()]
        places = {"input": demo.HELD_OUT_PROMPTS, "draft": drafts, "output_dir": demo.EVALUATION}
        given = _on_demo(given, **places, estimate=estimates)
    runtime.finish(_call("evaluate", given, "draft", "input", "estimate"))


def export(given: Given) -> None:
    """Write a draft in the forms that it is served in; see `regenerate`."""
    runtime, given = where(given, STACK_OF["export"])
    if not is_given(given, "draft", "model_path", "output_dir", "store", "train_report", "evaluation"):
        demo.ensure_target(runtime)
        given = _on_demo(
            given,
            draft=demo.TRAIN / "best",
            output_dir=demo.EXPORT,
            store=demo.made(demo.store_of(demo.REGENERATED)),
            train_report=demo.made(demo.TRAIN / "report.json"),
            evaluation=demo.made(demo.EVALUATION / "evaluation.json"),
        )
    runtime.finish(_call("export", given, "draft", "store", "train_report", "evaluation"))


def _on_demo(given: Given, **places: Any) -> Given:
    """The flags with the demo's target and places; those that are None are left out."""
    named = {name: value if isinstance(value, list) else str(value) for name, value in places.items() if value}
    return given | {"model_path": str(demo.target_folder())} | named


def _call(stage: str, given: Given, *inputs: str, shared_by: str = "tp_size") -> StageCall:
    """The call of a stage.

    Args:
        stage: its name.
        given: its flags.
        inputs: names of the flags whose files and folders it reads, beside the target.
        shared_by: name of the flag that says how many devices work together.
    """
    given = with_absolute_paths(given)
    values = [item for name in inputs for item in _list(given[name])]
    return StageCall(
        stage=stage,
        arguments=tuple(to_flags(given)),
        reads=(*target(given), *paths(*map(folder_of, values))),
        writes=paths(given["output_dir"]),
        offline=is_local(given["model_path"]),
        tp_size=devices(given, shared_by),
    )


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []
