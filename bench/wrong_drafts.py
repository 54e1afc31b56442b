"""Does the figure react? Drafts trained the same way but for one mistake each, and the acceptance length of each.

    ./eyas bench.wrong-drafts --store S --off-store O --held-out H --model-path T --output-dir D

Every draft trains as the demo's recipe says, on the same samples in the same order for the same number of steps; one
that is there already is left as it is. The mistakes are those that train without complaint:

    right       none
    ahead       each row's states are those of the row after it, in which the target has read the token to be given
    behind      each row's states are those of the row before it
    layers      the states are those one layer further on (the store O), the draft says they are not
    un-normed   targets from the last state as it is, without the target's final norm
    numbering   `right`, exported with every layer's number one too high

All have an estimate from the held-out store H, which has the layers of S and those of O; beside it the difference to
`right`, and that difference's standard error over samples, which are the same for both. `./eyas evaluate` serves them
all: the line to do so is printed at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomllib
import torch

from pipeline.estimate.run import Estimate, estimate, standard_error
from pipeline.export.draft import read_draft
from pipeline.store.dataset import HiddenStateDataset
from pipeline.store.manifest import read_manifest
from pipeline.train import fit, run
from pipeline.train.command import main as train

LAYERS = "eagle_aux_hidden_state_layer_ids"
MISTAKES = ("right", "ahead", "behind", "layers", "un-normed")
RECIPE = Path(__file__).parent.parent / "examples" / "recipes" / "demo.toml"


def main(argv: list[str]) -> int:
    """Train, estimate and say how to serve."""
    given = _parser().parse_args(argv)
    if given.mistake:
        _train(given.mistake, given)
        return 0
    given.output_dir.mkdir(parents=True, exist_ok=True)
    for name in MISTAKES:
        if (given.output_dir / name / "config.json").is_file():
            continue
        command = [sys.executable, "-m", "bench.wrong_drafts", *argv, f"--mistake={name}"]
        subprocess.run(command, check=True)  # of its own: what one mistake replaces must not reach the next draft
    _renumbered(given.output_dir / "right", given.output_dir / "numbering")
    names = (*MISTAKES, "numbering")
    found = {name: _estimate(name, given) for name in names}
    print(f"{'draft':<12}{'estimate':>9}{'to right':>18}  by position")
    for name in names:
        print(_line(name, found))
    drafts = " ".join(f"--draft {name}={given.output_dir / name}" for name in names)
    print(f"./eyas evaluate --model-path {given.model_path} {drafts} --input PROMPTS --output-dir DIR --dtype float32")
    return 0


def _parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="python -m bench.wrong_drafts", description=__doc__.split("\n")[0])
    flags.add_argument("--store", type=Path, required=True, help="states to train on")
    flags.add_argument("--off-store", type=Path, required=True, help="of the same data, one layer further on each")
    flags.add_argument("--held-out", type=Path, required=True, help="the store to estimate with, of both's layers")
    flags.add_argument("--model-path", type=Path, required=True, help="the target's folder")
    flags.add_argument("--output-dir", type=Path, required=True, help="for the drafts")
    flags.add_argument("--mistake", choices=MISTAKES, help=argparse.SUPPRESS)
    return flags


def _train(name: str, given: argparse.Namespace) -> None:
    """Train one draft, and keep of it what a server loads."""
    store = given.off_store if name == "layers" else given.store
    {"ahead": _shift(-1), "behind": _shift(1), "un-normed": _leave_norm_out}.get(name, lambda: None)()
    work = given.output_dir / f"{name}.train"
    flags = tomllib.loads(RECIPE.read_text())["train"] | {
        "store": store,
        "model-path": given.model_path,
        "output-dir": work,
    }
    train([part for flag, value in flags.items() for part in (f"--{flag}", str(value))])
    draft = given.output_dir / name
    draft.mkdir(exist_ok=True)
    shutil.copy(work / "best" / "model.safetensors", draft)
    config = json.loads((work / "best" / "config.json").read_bytes())
    config[LAYERS] = fit.auxiliary_layers(read_manifest(given.store))
    (draft / "config.json").write_text(json.dumps(config, indent=2), "utf-8")


def _shift(rows: int) -> Callable[[], None]:
    """Have every sample's auxiliary states moved by so many rows."""

    def replace() -> None:
        proper = HiddenStateDataset.__getitem__

        def shifted(dataset: HiddenStateDataset, number: int) -> Any:
            sample = proper(dataset, number)
            states = sample["hidden_states"].clone()
            states[:, :-1] = states[:, :-1].roll(rows, 0)
            sample["hidden_states"] = states
            return sample

        HiddenStateDataset.__getitem__ = shifted  # type: ignore[method-assign]

    return replace


def _leave_norm_out() -> None:
    proper = run.build

    def build(*arguments: Any) -> Any:
        draft = proper(*arguments)
        draft.verifier_norm = torch.nn.Identity()
        return draft

    run.build = build


def _renumbered(draft: Path, folder: Path) -> None:
    shutil.copytree(draft, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_bytes())
    config[LAYERS] = [layer + 1 for layer in config[LAYERS]]
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")


def _estimate(name: str, given: argparse.Namespace) -> Estimate:
    draft = read_draft(given.output_dir / name)
    return estimate(HiddenStateDataset(given.held_out), draft, given.model_path, 3, lambda _: None)


def _line(name: str, found: dict[str, Estimate]) -> str:
    one, right = found[name], found["right"]
    counts = one.counts
    shares = " ".join(f"{taken / counts.drafts:.1%}" for taken in counts.accepted_per_position)
    apart = counts.acceptance_length - right.counts.acceptance_length
    error = standard_error([here - there for here, there in zip(one.deviations, right.deviations, strict=True)])
    compared = "" if one is right else f"{apart:+.3f} ± {error:.3f}"
    return f"{name:<12}{counts.acceptance_length:>9.3f}{compared:>18}  {shares}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
