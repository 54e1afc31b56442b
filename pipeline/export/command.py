"""`python -m pipeline export`: a draft in the forms that vLLM and SGLang load, each with a model card.

Out: `speculators/` and `eagle3/`, each with config.json, model.safetensors and README.md. What was written is read back
and held against what the loaders ask for before it has its name.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from rich.filesize import decimal

from pipeline.errors import ExportError
from pipeline.export.folder import staged
from pipeline.extract.target import locate_target, read_target
from pipeline.store.layout import store_in

if TYPE_CHECKING:
    from pipeline.export.draft import Draft
    from pipeline.export.forms import Form, TargetFacts
    from pipeline.export.sources import Sources

Dtype = Literal["bfloat16", "float16", "float32"]
Format = Literal["both", "speculators", "eagle3"]
CARD = "README.md"


def main(argv: list[str]) -> int:
    """Run the stage; `--help` tells the flags.

    Returns:
        0.

    Raises:
        SettingsError, InputError, NoSpaceError: see docs/architecture.md.
        FitError: draft, target and store do not fit each other.
        CheckpointError: the draft is damaged.
        ExportError: what was or would be written does not load.
    """
    flags = _parse(argv)
    from pipeline.export.draft import read_draft  # these import torch, which --help needs not
    from pipeline.export.fit import check_target
    from pipeline.export.target import target_facts

    draft, shape = read_draft(flags.draft), read_target(locate_target(flags.model_path, config_only=False))
    check_target(draft, shape)
    target = target_facts(shape.folder, flags.verifier_name)
    forms, sources = _forms(flags, draft, target), _sources(flags, draft, shape.folder)
    with staged(flags.output_dir, tuple(form.name for form in forms), overwrite=flags.overwrite) as folders:
        for form in forms:
            _write(folders[form.name], form, draft, target, sources)
    for form in forms:
        size = sum(file.stat().st_size for file in (flags.output_dir / form.name).iterdir())
        print(f"export: {flags.output_dir / form.name}: {decimal(size)}, read back and checked")
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline export",
        description="A draft in the forms that vLLM and SGLang load, each with a model card.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--draft", type=Path, required=True, help="a checkpoint's folder, such as best/ of a training run")
    add("--model-path", type=Path, required=True, help="the target's folder")
    add("--output-dir", type=Path, required=True, help="where speculators/ and eagle3/ go")
    add(
        "--store",
        type=Path,
        help="the store it was trained from: its digests and the vocabulary's coverage, for the card",
    )
    add("--train-report", type=Path, metavar="FILE", help="report.json of the training, for the card")
    add("--evaluation", type=Path, metavar="FILE", help="evaluation.json, whose table goes into the card")
    add("--verifier-name", help="the target's hub name, for config and card (default: its folder's name)")
    add("--dtype", choices=get_args(Dtype), default="bfloat16", help="of the weights (default: %(default)s)")
    add("--format", choices=get_args(Format), default="both", help="which of the two (default: %(default)s)")
    add("--overwrite", action="store_true", help="replace another export that is there")
    return parser.parse_args(argv)


def _forms(flags: argparse.Namespace, draft: Draft, target: TargetFacts) -> list[Form]:
    import torch

    from pipeline.export.forms import EAGLE3, SPECULATORS, eagle3_form, speculators_form

    makers = {SPECULATORS: speculators_form, EAGLE3: eagle3_form}
    dtype = getattr(torch, flags.dtype)
    return [make(draft, target, dtype) for name, make in makers.items() if flags.format in ("both", name)]


def _sources(flags: argparse.Namespace, draft: Draft, target_folder: Path) -> Sources:
    from pipeline.export.fit import check_store
    from pipeline.export.sources import Sources, coverage, read_evaluation, read_report
    from pipeline.store.manifest import read_manifest

    manifest, covered = None, None
    if flags.store is not None:
        store = store_in(flags.store)
        manifest = read_manifest(store)
        check_store(draft, read_target(target_folder), store, manifest)
        covered = coverage(store, draft.to_target())
    return Sources(
        manifest=manifest,
        coverage=covered,
        training=read_report(flags.train_report, "--train-report"),
        evaluation=read_evaluation(flags.evaluation),
    )


def _write(folder: Path, form: Form, draft: Draft, target: TargetFacts, sources: Sources) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from pipeline.export.card import card
    from pipeline.export.check import check_export
    from pipeline.export.draft import CONFIG, WEIGHTS

    (folder / CONFIG).write_text(json.dumps(form.config, indent=2, sort_keys=True) + "\n", "utf-8")
    try:
        save_file(dict(form.tensors), folder / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:
        raise ExportError(f"cannot write {folder / WEIGHTS}: {error}") from error
    (folder / WEIGHTS).chmod((folder / CONFIG).stat().st_mode)  # safetensors lets nobody else read it
    (folder / CARD).write_text(card(form, draft, target, sources), "utf-8")
    check_export(folder, form)
