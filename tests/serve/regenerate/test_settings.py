"""Flags that cannot be honoured are refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import SettingsError
from pipeline.regenerate.settings import parse

REQUIRED = ["--input", "a.jsonl", "--model-path", "target", "--output-dir", "out"]


@pytest.mark.parametrize(
    "flags",
    [
        "--temperature=-1",
        "--temperature=nan",
        "--temperature=inf",
        "--temperature=0.001",
        "--temperature=1 --top-p=0",
        "--temperature=1 --top-p=1.1",
        "--temperature=1 --top-p=nan",
        "--temperature=1 --top-k=-1",
        "--temperature=1 --top-k=2147483648",
        "--top-p=0.9",
        "--top-k=5",
        "--seed=-1",
        "--seed=9223372036854775808",
        "--max-new-tokens=0",
        "--max-model-len=0",
        "--batch-size=0",
        "--tp-size=0",
        "--limit=0",
        "--gpu-memory-utilization=0",
        "--gpu-memory-utilization=1.5",
    ],
)
def test_a_value_out_of_its_range_is_refused_by_name(flags: str) -> None:
    last = flags.rsplit(maxsplit=1)[-1].split("=", maxsplit=1)[0]
    with pytest.raises(SettingsError, match=last):
        parse([*REQUIRED, *flags.split()])


def test_inputs_can_be_listed_and_repeated() -> None:
    settings = parse(["--input", "a.jsonl", "b.jsonl", "--input", "c.jsonl", *REQUIRED[2:]])
    assert settings.input == [Path("a.jsonl"), Path("b.jsonl"), Path("c.jsonl")]


def test_by_default_the_likeliest_token_is_taken() -> None:
    settings = parse(REQUIRED)
    assert (settings.temperature, settings.top_p, settings.top_k, settings.seed) == (0, 1, 0, 0)
