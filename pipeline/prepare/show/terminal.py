"""Samples on the terminal, with what is trained on set apart.

In: the first samples of a result and the target's tokenizer. Out: text; trained runs are coloured on a terminal, and
stand in ⟦ ⟧ elsewhere. Nothing of a sample reaches the terminal as a control character.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from pipeline.prepare.header import DATA
from pipeline.prepare.show.runs import Run, Speller, visible
from pipeline.prepare.show.samples import read_objects

# Bold black on green, so that it can be told from the rest without telling colours apart, on light and dark grounds.
TRAINED, PLAIN = "\x1b[1;30;42m", "\x1b[0m"


def coloured(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to print colours: as NO_COLOR and FORCE_COLOR say, in this order; else on a terminal."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in {"", "0"}:
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def lines(folder: Path, tokenizer: Any, number: int, ids: bool, colours: bool) -> Iterator[str]:
    """The first samples of a result.

    Args:
        folder: prepare's output folder.
        tokenizer: the target's, of transformers.
        number: of samples, at most.
        ids: whether to add the token ids of each run.
        colours: whether to set trained runs apart with colours, else with ⟦ ⟧.

    Raises:
        InputError: the result is missing, or not as prepare writes it.
    """
    speller = Speller(tokenizer)
    for place, sample in enumerate(islice(read_objects(folder / DATA), number), 1):
        length, trained = len(sample["input_ids"]), sum(sample["loss_mask"])
        yield f"--- sample {place}: {visible(str(sample['id']))}, {length} tokens, {trained} trained"
        runs = list(speller.runs(sample["input_ids"], sample["loss_mask"]))
        yield "".join(_shown(run, colours) for run in runs)
        if ids:
            yield from (f"    {'trained' if run.trained else 'context'}: {' '.join(map(str, run.ids))}" for run in runs)


def _shown(run: Run, colours: bool) -> str:
    text = visible(run.text)
    if not run.trained:
        return text
    if not colours:
        return f"⟦{text}⟧"
    # Line by line: a terminal would fill the rest of a line with a background that goes on after it.
    return "\n".join(f"{TRAINED}{line}{PLAIN}" if line else line for line in text.split("\n"))
