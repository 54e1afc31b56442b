"""One step of a pipeline: a stage, its flags, what it reads and what it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ops.pipeline.digests import Source
from ops.pipeline.flags import FLAGS, PATH, Settings, words
from ops.stage import StageCall


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call of a stage."""

    name: str
    stage: str
    folder: Path
    """what it writes"""
    settings: Settings
    """flags from the recipe"""
    paths: tuple[str, ...]
    """the other flags: where input and output are"""
    inputs: Mapping[str, Source]
    outputs: Mapping[str, Source]
    reads: tuple[Path, ...]
    check: Callable[[Path], None] | None = field(default=None)
    """looks at the folder after the stage has ended, and raises a UserError where something is wrong"""

    @property
    def recorded(self) -> Settings:
        """The settings that are part of what the step was made from; a path counts by the digest of what is there."""
        return {name: value for name, value in self.settings.items() if FLAGS[self.stage][name] != PATH}

    @property
    def call(self) -> StageCall:
        """The stage call."""
        return StageCall(
            stage=self.stage,
            arguments=(*self.paths, *words(self.settings)),
            reads=self.reads,
            writes=(self.folder,),
            tp_size=max(int(self.settings.get("tp-size", 1)), int(self.settings.get("nproc", 1))),
        )
