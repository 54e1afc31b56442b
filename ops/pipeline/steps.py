"""The steps of a pipeline, in order: which stage, with which flags, from what, into which folder.

Every step writes one folder of its own under RUN/steps, named like the step: what a step made can be moved aside as a
whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.pipeline.check import exports_served_alike
from ops.pipeline.digests import Source
from ops.pipeline.flags import FLAGS, PATH, Settings
from ops.pipeline.recipe import EVALUATE_EXPORTS, HELD_OUT, Recipe
from ops.pipeline.step import Step

# Beside it a run folder may hold what stages made that were run one by one.
STEPS = "steps"
EXPORTS = ("speculators", "eagle3")


def steps_of(recipe: Recipe, target: Path, run: Path) -> tuple[Step, ...]:
    """All steps of a recipe, in the order in which they run.

    Args:
        recipe: what to do.
        target: the target's folder.
        run: the run folder.
    """
    return _Maker(recipe, target, run).steps()


class _Maker:
    def __init__(self, recipe: Recipe, target: Path, run: Path) -> None:
        self._recipe, self._target, self._folder = recipe, target, run / STEPS

    def steps(self) -> tuple[Step, ...]:
        held_out = f"{HELD_OUT}-"
        return (
            *self._states("", self._recipe.prompts),
            self._train(),
            *self._states(held_out, (self._recipe.held_out_prompts,)),
            self._estimate(self._folder / f"{held_out}extract"),
            self._evaluate(),
            self._export(),
            self._evaluate_exports(),
        )

    def _states(self, prefix: str, prompts: tuple[Path, ...]) -> tuple[Step, ...]:
        answers, tokens = self._folder / f"{prefix}regenerate", self._folder / f"{prefix}prepare"
        conversations, prepared = answers / "conversations.jsonl", tokens / "tokenized.jsonl"
        regenerate = self._step(
            f"{prefix}regenerate",
            _prompts(prompts),
            flags={"input": prompts},
            outputs=dict.fromkeys(("conversations.jsonl", "conversations.header.json"), "file"),
        )
        prepare = self._step(
            f"{prefix}prepare",
            {"conversations": Source(conversations, "file")},
            flags={"input": (conversations,)},
            outputs=dict.fromkeys(("tokenized.jsonl", "tokenized.header.json"), "file"),
        )
        extract = self._step(
            f"{prefix}extract",
            {"tokenized data": Source(prepared, "file"), "header": Source(tokens / "tokenized.header.json", "file")},
            flags={"prepared-data": (prepared,)},
            outputs={".": "store"},
        )
        return regenerate, prepare, extract

    def _train(self) -> Step:
        store = self._folder / "extract"
        return self._step(
            "train",
            {"store": Source(store, "store"), **_named_by(self._recipe.stages["train"], "train")},
            flags={"store": (store,)},
            outputs={"best": "folder", "untrained": "folder", "report.json": "file"},
        )

    def _estimate(self, store: Path) -> Step:
        return self._step(
            "estimate",
            {"held-out store": Source(store, "store"), "draft": self._draft("best")},
            flags={"store": (store,), "draft": (self._draft("best").path,)},
            outputs={"estimate.json": "file"},
        )

    def _evaluate(self) -> Step:
        estimate = self._folder / "estimate" / "estimate.json"
        drafts = {"trained": self._draft("best"), "untrained": self._draft("untrained")}
        return self._serving("evaluate", drafts, {"estimate": Source(estimate, "file")}, {"estimate": (estimate,)})

    def _export(self) -> Step:
        files = {
            "train-report": Source(self._folder / "train" / "report.json", "file"),
            "evaluation": Source(self._folder / "evaluate" / "evaluation.json", "file"),
        }
        inputs = {"draft": self._draft("best"), "store": Source(self._folder / "extract", "store"), **files}
        return self._step(
            "export",
            inputs,
            flags={name: (source.path,) for name, source in inputs.items()},
            outputs=dict.fromkeys(EXPORTS, "folder"),
        )

    def _evaluate_exports(self) -> Step:
        drafts = {name: Source(self._folder / "export" / name, "folder") for name in EXPORTS}
        return self._serving(EVALUATE_EXPORTS, drafts, {}, {}, check=exports_served_alike)

    def _serving(
        self,
        name: str,
        drafts: Mapping[str, Source],
        more: Mapping[str, Source],
        flags: Mapping[str, tuple[Path, ...]],
        **other: Any,
    ) -> Step:
        prompts = (self._recipe.held_out_prompts,)
        inputs = {f"draft {draft}": source for draft, source in drafts.items()}
        named = tuple(f"{draft}={source.path}" for draft, source in drafts.items())
        return self._step(
            name,
            {**inputs, **_prompts(prompts), **more},
            flags={"draft": named, "input": prompts, **flags},
            outputs={"evaluation.json": "file", "answers.jsonl": "file"},
            **other,
        )

    def _draft(self, name: str) -> Source:
        return Source(self._folder / "train" / name, "folder")

    def _step(
        self,
        name: str,
        inputs: Mapping[str, Source],
        *,
        flags: Mapping[str, tuple[Any, ...]],
        outputs: Mapping[str, Any],
        **other: Any,
    ) -> Step:
        folder, stage = self._folder / name, _stage_of(name)
        places = {"model-path": (self._target,), "output-dir": (folder,), **flags}
        return Step(
            name=name,
            stage=stage,
            folder=folder,
            settings=self._recipe.stages[name.replace(f"{HELD_OUT}-", f"{HELD_OUT}.")],
            paths=tuple(f"--{flag}={place}" for flag, values in places.items() for place in values),
            inputs={"target": Source(self._target, "target"), **inputs},
            outputs={output: Source(folder / output, kind) for output, kind in outputs.items()},
            reads=tuple(dict.fromkeys((self._target, *(self._around(source.path) for source in inputs.values())))),
            **other,
        )

    def _around(self, path: Path) -> Path:
        """What a container is given: of another step's folder all, so that links in it lead somewhere."""
        return self._folder / path.relative_to(self._folder).parts[0] if self._folder in path.parents else path


def _named_by(settings: Settings, stage: str) -> dict[str, Source]:
    """What settings name on the disk."""
    paths = {name: Path(value) for name, value in settings.items() if FLAGS[stage][name] == PATH}
    return {name: Source(path, "folder" if path.is_dir() else "file") for name, path in paths.items()}


def _prompts(files: tuple[Path, ...]) -> dict[str, Source]:
    """By name, and by number too where two have one name."""
    names = [file.name for file in files]
    told = [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)]
    return {f"prompts {name}": Source(file, "file") for name, file in zip(told, files, strict=True)}


def _stage_of(name: str) -> str:
    return "evaluate" if name == EVALUATE_EXPORTS else name.removeprefix(f"{HELD_OUT}-")
