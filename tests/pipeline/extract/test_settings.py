"""The extract stage's flags: the original system's command line, ranges checked, one help text per field."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from pipeline.errors import SettingsError
from pipeline.extract.settings import ExtractSettings, parse, parser

NEEDED = ["--model-path", "m", "--prepared-data", "d", "--output-dir", "o"]


def test_the_original_systems_command_line_is_understood() -> None:
    settings = parse(
        [
            *("--model-path", "/models/Kimi-K2.5", "--prepared-data", "tokenized.jsonl", "--output-dir", "store"),
            *("--batch-size", "16", "--max-seq-len", "4096", "--tp-size", "8"),
            *("--gpu-memory-utilization", "0.80", "--layer-ids", "2", "30", "58", "60"),
        ]
    )
    assert settings == ExtractSettings(
        model_path=Path("/models/Kimi-K2.5"),
        prepared_data=Path("tokenized.jsonl"),
        output_dir=Path("store"),
        batch_size=16,
        max_seq_len=4096,
        tp_size=8,
        gpu_memory_utilization=0.8,
        layer_ids=(2, 30, 58, 60),
    )


def test_defaults_are_the_documented_ones() -> None:
    settings = parse(NEEDED)
    shown = (settings.batch_size, settings.max_seq_len, settings.tp_size, settings.token_budget, settings.dtype)
    assert shown == (32, 2048, 1, 8192, "auto")
    assert (settings.gpu_memory_utilization, settings.over_long, settings.engine) == (0.8, "reject", "speculators")
    assert settings.layer_ids is None
    assert not settings.trust_remote_code
    assert not settings.dry_run


@pytest.mark.parametrize("given", [["2,30,58,60"], ["2", "30,58", "60"]])
def test_layer_ids_may_have_commas(given: list[str]) -> None:
    assert parse([*NEEDED, "--layer-ids", *given]).layer_ids == (2, 30, 58, 60)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--batch-size", "0"),
        ("--max-seq-len", "0"),
        ("--tp-size", "-1"),
        ("--token-budget", "0"),
        ("--gpu-memory-utilization", "0"),
        ("--gpu-memory-utilization", "1.01"),
        ("--gpu-memory-utilization", "nan"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_flag(flag: str, value: str) -> None:
    with pytest.raises(SettingsError, match=flag):
        parse([*NEEDED, flag, value])


@pytest.mark.parametrize("extra", [["--batch-size", "x"], ["--dtype", "int8"], ["--no-such-flag"], ["--batch", "3"]])
def test_a_malformed_command_line_exits_with_2(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse([*NEEDED, *extra])
    assert stop.value.code == 2
    assert extra[0] in capsys.readouterr().err


def test_every_field_is_a_flag_with_a_help_text() -> None:
    flags = {option: action.help for action in parser()._actions for option in action.option_strings}
    for field in fields(ExtractSettings):
        assert flags["--" + field.name.replace("_", "-")]


def test_help_shows_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(["--help"])
    assert stop.value.code == 0
    assert "(default: 8192)" in capsys.readouterr().out
