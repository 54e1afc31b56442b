"""What --show prints and the page holds, of results made by hand."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from pipeline.errors import InputError, SettingsError
from pipeline.prepare.command import main
from pipeline.prepare.header import DATA, HEADER, REJECTED
from pipeline.prepare.show.page import PAGE, TOKENS, write_page
from pipeline.prepare.show.runs import Speller, visible
from pipeline.prepare.show.statistics import count
from pipeline.prepare.show.terminal import coloured, lines
from tests.pipeline.prepare.conftest import talk

NASTY = "a\n\x1b[31m<script>alert('1')</script> & 漢字 😀 \u202e"


def write_result(folder: Path, samples: list[tuple[list[int], list[int]]], reasons: tuple[str, ...] = ()) -> Path:
    folder.mkdir(exist_ok=True)
    rows = [{"id": f"<b>{place}", "input_ids": ids, "loss_mask": mask} for place, (ids, mask) in enumerate(samples)]
    (folder / DATA).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    rejected = [{"source": "x", "line": 1, "id": "x", "reason": reason, "detail": "x"} for reason in reasons]
    (folder / REJECTED).write_text("".join(json.dumps(row) + "\n" for row in rejected), "utf-8")
    header = {"format": 1, "sources": [{"name": "<i>.jsonl", "sha256": "ab" * 32}], "settings": {"max_seq_len": 7}}
    (folder / HEADER).write_text(json.dumps(header), "utf-8")
    return folder


@pytest.fixture
def nasty(tokenizer: Any, tmp_path: Path) -> Path:
    """A result of one sample, whose second half is trained on, and one without any trained token."""
    ids = tokenizer(NASTY)["input_ids"]
    half = len(ids) // 2
    return write_result(tmp_path / "out", [(ids, [0] * half + [1] * (len(ids) - half)), (ids, [0] * len(ids))])


def test_every_text_is_spelt_as_it_was(tokenizer: Any) -> None:
    ids = tokenizer(NASTY)["input_ids"]
    (run,) = Speller(tokenizer).runs(ids, [1] * len(ids))
    assert run.text == NASTY
    assert list(run.ids) == ids


def test_no_character_is_split_where_its_tokens_are_of_one_run(tokenizer: Any) -> None:
    ids = tokenizer("😀漢")["input_ids"]
    (run,) = Speller(tokenizer).runs(ids, [0] * len(ids))
    assert len(ids) > 2
    assert [piece.text for piece in run.pieces] == ["😀", "漢"]


def test_a_run_that_ends_inside_a_character_shows_its_bytes(tokenizer: Any) -> None:
    ids = tokenizer("😀")["input_ids"]
    first, second = Speller(tokenizer).runs(ids, [0] + [1] * (len(ids) - 1))
    assert first.text + second.text == r"\xf0\x9f\x98\x80"


def test_a_vocabulary_with_byte_fallback_is_spelt_with_its_spaces() -> None:
    names = ["<unk>", "▁", "a", *(f"<0x{byte:02X}>" for byte in "漢".encode())]
    model = models.BPE({name: place for place, name in enumerate(names)}, [], byte_fallback=True)
    made = Tokenizer(model)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(parts)
    speller = Speller(PreTrainedTokenizerFast(tokenizer_object=made))
    runs = speller.runs([1, 2, 3, 4, 5, 1, 2, 3, 4], [1, 1, 1, 1, 1, 0, 0, 0, 0])
    assert [[piece.text for piece in run.pieces] for run in runs] == [[" ", "a", "漢"], [" ", "a", r"\xe6\xbc"]]


def test_a_vocabulary_of_another_kind_is_decoded_run_by_run() -> None:
    made = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2}))
    runs = list(Speller(PreTrainedTokenizerFast(tokenizer_object=made)).runs([1, 2, 1], [0, 1, 1]))
    assert [(run.trained, run.text, run.ids) for run in runs] == [(False, "a", (1,)), (True, "b a", (2, 1))]


def test_an_id_that_is_no_token_is_named(tokenizer: Any) -> None:
    (run,) = Speller(tokenizer).runs([10**6], [0])
    assert run.text == "<no token 1000000>"


def test_nothing_acts_on_the_terminal() -> None:
    assert visible("a\x1b[0m\r\u202e\ud800") == r"a\x1b[0m\r\u202e\ud800"
    assert visible("a\nb") == "a⏎\nb"
    assert visible("é 👩\u200d🔬") == "é 👩\u200d🔬"


def test_trained_text_stands_in_brackets_without_colours(tokenizer: Any, nasty: Path) -> None:
    told = "\n".join(lines(nasty, tokenizer, 1, ids=False, colours=False))
    ids = tokenizer(NASTY)["input_ids"]
    trained = visible(tokenizer.decode(ids[len(ids) // 2 :]))
    assert told.count("⟦") == 1
    assert re.search("⟦(.*)⟧", told, re.DOTALL)[1] == trained
    assert "\x1b" not in told
    assert "sample 2" not in told


def test_colours_end_where_lines_end(tokenizer: Any, tmp_path: Path) -> None:
    ids = tokenizer("one\ntwo")["input_ids"]
    folder = write_result(tmp_path / "out", [(ids, [1] * len(ids))])
    _, *told = "\n".join(lines(folder, tokenizer, 1, ids=False, colours=True)).split("\n")
    assert [re.sub("\x1b\\[[0-9;]*m", "|", line) for line in told] == ["|one⏎|", "|two|"]


def test_ids_of_all_runs_are_the_samples(tokenizer: Any, nasty: Path) -> None:
    told = list(lines(nasty, tokenizer, 1, ids=True, colours=False))
    shown = [line.split(": ")[1] for line in told if line.startswith("    ")]
    assert " ".join(shown) == " ".join(map(str, tokenizer(NASTY)["input_ids"]))


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_are_as_the_environment_says(variables: dict[str, str], wanted: bool) -> None:
    assert coloured(io.StringIO(), variables) is wanted


def test_statistics_are_those_of_a_count_by_hand(tmp_path: Path) -> None:
    samples = [([5, 6, 7, 5], [0, 1, 1, 1]), ([5] * 9, [1] * 9), ([8], [0]), ([6, 9], [1, 0])]
    found = count(write_result(tmp_path / "out", samples, ("b", "a", "b")))
    trained = [token for ids, mask in samples for token, one in zip(ids, mask, strict=True) if one]
    assert (found.samples, found.tokens, found.trained, found.longest) == (4, 16, len(trained), 9)
    assert found.lengths == {2: 1, 3: 1, 0: 1, 1: 1}
    assert {place: samples for place, samples in enumerate(found.shares) if samples} == {0: 1, 10: 1, 15: 1, 19: 1}
    assert found.rejected == {"a": 1, "b": 2}
    ranked = [number for _, number in Counter(trained).most_common()]
    assert found.coverage() == {size: sum(ranked[:size]) / len(trained) for size in (1, 2, 3)}
    assert (found.covering(0.1), found.covering(0.9), found.covering(1)) == (1, 2, 3)


def test_the_page_is_the_same_every_time(tokenizer: Any, nasty: Path) -> None:
    first = write_page(nasty, tokenizer).read_bytes()
    assert write_page(nasty, tokenizer).read_bytes() == first


def test_nothing_of_a_sample_is_markup_on_the_page(tokenizer: Any, nasty: Path) -> None:
    page = write_page(nasty, tokenizer).read_text("utf-8")
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "\x1b" not in page
    _, *samples = page.split("<article>")
    text = unescape(re.sub("<[^>]*>", "", re.search("<pre[^>]*>(.*)</pre>", samples[1], re.DOTALL)[1]))
    assert text == visible(NASTY)


def test_the_page_marks_what_is_trained_on_and_nothing_else(tokenizer: Any, nasty: Path) -> None:
    _, trained, untrained = write_page(nasty, tokenizer).read_text("utf-8").split("<article>")
    ids = tokenizer(NASTY)["input_ids"]
    marked = "".join(re.findall("<mark>(.*?)</mark>", trained, re.DOTALL))
    assert " ".join(re.findall('title="([0-9 ]+)"', marked)).split() == [str(one) for one in ids[len(ids) // 2 :]]
    assert "<mark>" not in untrained


def test_the_page_needs_and_names_nothing_outside_it(tokenizer: Any, nasty: Path) -> None:
    page = write_page(nasty, tokenizer).read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.findall(r"\w+://", page)
    assert not [target for target in re.findall(r'(?:href|src)="([^"]*)"', page) if not target.startswith("#")]
    assert not [target for target in re.findall(r"url\(([^)]*)", page) if not target.startswith("#")]
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)
    assert page.count('role="img" aria-label="') == 4


def test_what_the_page_leaves_out_of_a_long_sample_is_said(tokenizer: Any, tmp_path: Path) -> None:
    folder = write_result(tmp_path / "out", [([5] * (TOKENS + 1_234), [1] * (TOKENS + 1_234))])
    page = write_page(folder, tokenizer).read_text("utf-8")
    assert page.count('title="5"') == TOKENS
    assert "1,234 more tokens are not shown" in page


def test_an_empty_result_has_a_page(tokenizer: Any, tmp_path: Path) -> None:
    assert "The first 0 of 0" in write_page(write_result(tmp_path / "out", []), tokenizer).read_text("utf-8")


def test_a_result_that_is_not_prepares_is_refused_with_its_place(tokenizer: Any, tmp_path: Path) -> None:
    folder = write_result(tmp_path / "out", [([5], [1])])
    with (folder / DATA).open("a", encoding="utf-8") as file:
        file.write("half a li")
    with pytest.raises(InputError, match=f"{DATA}:2"):
        write_page(folder, tokenizer)


def test_prepare_shows_its_result_also_when_it_is_up_to_date(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "chats.jsonl"
    source.write_text(json.dumps({"messages": talk("Hi", "Hello!")}) + "\n", "utf-8")
    out = tmp_path / "out"
    flags = ["--input", str(source), "--model-path", str(target), "--output-dir", str(out)]
    assert main(flags) == 0
    assert "⟦" not in capsys.readouterr().out
    assert not (out / PAGE).exists()
    assert main([*flags, "--show", "3", "--page"]) == 0
    told = capsys.readouterr().out
    assert "up to date" in told
    assert "⟦Hello!" in told
    assert (out / PAGE).is_file()


def test_ids_alone_are_refused(target: Path, tmp_path: Path) -> None:
    places = ["--input", "x", "--model-path", str(target), "--output-dir", str(tmp_path / "out")]
    with pytest.raises(SettingsError, match="--show N"):
        main([*places, "--show-ids"])
