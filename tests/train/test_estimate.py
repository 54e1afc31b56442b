"""The offline estimate against speculative decoding done for real: step by step, everything computed again."""

from __future__ import annotations

import json
import random
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.errors import CheckpointError, FitError, InputError, NoSamplesError
from pipeline.estimate.command import main
from pipeline.estimate.run import Estimate
from pipeline.estimate.truth import Answer, tokens_to_come
from pipeline.estimate.walk import Counts
from tests.train import plain_eagle3, tiny_drafts
from tests.train.tiny_drafts import EOS, INPUTS, VOCAB, Sample

STEPS = 3
MOST = 16


class Case:
    """A target, what it answers, a draft that has learnt a little of that, and held-out prompts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target_folder, self.draft = folder / "target", folder / "draft"
        self.target = tiny_drafts.make_target(self.target_folder)
        numbers = torch.Generator().manual_seed(1)
        prompts = [torch.randint(2, VOCAB, (n,), generator=numbers).tolist() for n in (3, 5, 9, 4, 7, 12, 6, 8, 2, 5)]
        self.turns = [(prompt, tiny_drafts.answer(self.target, prompt, MOST)) for prompt in prompts]
        model = tiny_drafts.make_draft(self.draft, self.target_folder)
        tiny_drafts.teach(model, self.target, [p + a for p, a in self.turns[:5]], 60)
        model.save_pretrained(self.draft)

    def estimate(self, samples: list[Sample], name: str) -> dict[str, Any]:
        store = tiny_drafts.make_store(self.folder / name, self.target, self.target_folder, samples)
        output = self.folder / f"{name}.out"
        arguments = ["--store", store, "--model-path", self.target_folder, "--draft", self.draft]
        assert main([*map(str, arguments), "--output-dir", str(output)]) == 0
        return json.loads((output / "estimate.json").read_text())

    def serve(self, prompt: list[int], told_after_end: int) -> list[int]:
        """Speculative decoding as a server does it: how many draft tokens each round accepts.

        Args:
            prompt: tokens.
            told_after_end: of the tokens after the answer's end, how many may count.
        """
        config, weights = plain_eagle3.read(self.draft)
        embed, layers = self.target.model.embed_tokens.weight, [layer - 1 for layer in INPUTS]
        tokens, rounds = [*prompt, tiny_drafts.next_token(self.target, prompt)], list[int]()
        while not over(tokens[len(prompt) :]):
            taken = tiny_drafts.states(self.target, tokens[:-1])[:, layers].flatten(1)
            proposed = plain_eagle3.propose(config, weights, embed, taken, tokens, STEPS)
            fitting = list[int]()
            while len(fitting) < STEPS and (
                tiny_drafts.next_token(self.target, tokens + fitting) == proposed[len(fitting)]
            ):
                fitting.append(proposed[len(fitting)])
            grown = [*tokens, *fitting, tiny_drafts.next_token(self.target, tokens + fitting)]
            end = next(
                (i for i in range(len(tokens) + 1, len(grown) + 1) if over(grown[len(prompt) : i])), len(grown) + STEPS
            )
            rounds.append(min(len(fitting), end - len(tokens) + told_after_end))
            tokens = grown[:end]
        return rounds


def over(said: list[int]) -> bool:
    return said[-1] == EOS or len(said) >= MOST


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("estimate"))


def counted(rounds: list[int]) -> list[int]:
    return [sum(accepted > position for accepted in rounds) for position in range(STEPS)]


def test_the_estimate_counts_what_real_speculative_decoding_counts(case: Case) -> None:
    # The sample goes on with what the target would have said, so that nothing after an answer's end is unknown.
    samples, each = list[Sample](), list[list[int]]()
    for number, (prompt, said) in enumerate(case.turns):
        further = list[int]()
        for _ in range(STEPS):
            further.append(tiny_drafts.next_token(case.target, [*prompt, *said, *further]))
        ids = [*prompt, *said, *further]
        samples.append(Sample(f"s{number}", ids, [0] * len(prompt) + [1] * len(said) + [0] * STEPS))
        each.append(case.serve(prompt, told_after_end=STEPS))
    found, rounds = case.estimate(samples, "whole"), [accepted for one in each for accepted in one]
    assert set(rounds) == {0, 1, 2, 3}  # or the comparison would say little
    assert found["accepted_per_position"] == counted(rounds)
    assert found["drafts"] == len(rounds)
    assert found["acceptance_length"] == pytest.approx(1 + sum(rounds) / len(rounds), rel=1e-12)
    assert (found["samples"], found["answers"], found["unknown_after_end"]) == (10, 10, 0)
    assert found["tokens"] == sum(len(said) for _, said in case.turns)
    assert found["greedy_share"] == 1
    assert found["standard_error"] == pytest.approx(bootstrapped(each), rel=0.1)


def bootstrapped(each: list[list[int]]) -> float:
    """Standard error of the acceptance length, from samples drawn again and again."""
    draw, found = random.Random(0), list[float]()  # noqa: S311
    for _ in range(4_000):
        rounds = [accepted for one in draw.choices(each, k=len(each)) for accepted in one]
        found.append(statistics.mean(rounds))
    # Drawn from n samples, their spread is that of n - 1.
    return statistics.stdev(found) * (len(each) / (len(each) - 1)) ** 0.5


def test_where_samples_are_alike_in_length_the_error_is_that_of_a_mean() -> None:
    accepted = [2, 9, 4, 4, 7]
    counts = Counts(STEPS, drafts=50, accepted_per_position=[sum(accepted), 0, 0])
    found = Estimate(counts, by_sample=[(one, 10) for one in accepted])
    expected = statistics.stdev([one / 10 for one in accepted]) / len(accepted) ** 0.5
    assert found.standard_error == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("tail", [[], [0, 0, 0]], ids=["nothing", "other tokens"])
def test_after_an_answers_end_one_more_token_is_known(case: Case, tail: list[int]) -> None:
    samples, rounds = list[Sample](), list[int]()
    for number, (prompt, said) in enumerate(case.turns):
        assert tiny_drafts.next_token(case.target, prompt + said) != 0
        mask = [0] * len(prompt) + [1] * len(said) + [0] * len(tail)
        samples.append(Sample(f"s{number}", prompt + said + tail, mask))
        rounds += case.serve(prompt, told_after_end=1)
    found = case.estimate(samples, f"tail{len(tail)}")
    assert (found["accepted_per_position"], found["drafts"]) == (counted(rounds), len(rounds))


def test_every_turn_of_a_conversation_is_an_answer_of_its_own(case: Case) -> None:
    (first, _), prompt = case.turns[5], [4, 4, 9]
    said = tiny_drafts.answer(case.target, first, MOST)
    context = [*first, *said, *prompt]
    again = tiny_drafts.answer(case.target, context, MOST)
    mask = [0] * len(first) + [1] * len(said) + [0] * len(prompt) + [1] * len(again)
    found = case.estimate([Sample("two", context + again, mask)], "turns")
    rounds = case.serve(first, told_after_end=1) + case.serve(context, told_after_end=1)
    assert (found["accepted_per_position"], found["drafts"]) == (counted(rounds), len(rounds))
    assert (found["samples"], found["answers"]) == (1, 2)


def test_a_walk_worked_out_by_hand() -> None:
    # Prompt 0-1, answer 2-8. Right prefixes of the rounds that begin with the token at 2, 3, ... known:
    right = {2: 2, 3: 0, 4: 0, 5: 0, 6: 3, 7: 1, 8: 0}
    truth = torch.arange(100, 113)
    drafted = torch.full((3, 8), -5)
    for known, prefix in right.items():
        for step in range(prefix):
            drafted[step, known - 1] = truth[known + 1 + step]
    truth[9] = 109  # the token after the end is known, the next ones are not
    truth[10:] = -1
    counts = Counts(3)
    counts.add(drafted, truth, Answer(2, 9))
    # Known 2: tokens 3, 4 accepted, 5 the target's. Known 5: none, 6 its own. Known 6: 7, 8 and 9, which lies after the
    # end, accepted; that is the last round.
    assert (counts.drafts, counts.accepted_per_position, counts.tokens) == (3, [2, 2, 1], 7)
    assert counts.acceptance_length == 1 + 5 / 3
    # Anywhere: the first token is asked for from 2 to 7 (six times) and right at 2, 6 and 7; the second, inside the
    # answer, from 2 and 6; the third from 2 alone, for from 6 it lies after the end.
    assert (counts.asked, counts.right) == ([6, 2, 1], [3, 2, 0])
    assert counts.unknown == 0


@pytest.mark.parametrize(
    ("said", "after_end"),
    [([6, 7, 8, 9, 4], [8, 9, 4]), ([6, 7, 2, 9, 4], [2, -1, -1]), ([6, 7, 8, 3, 4], [8, 3, -1])],
    ids=["the sample goes on with it", "the sample goes on otherwise", "otherwise after one token"],
)
def test_tokens_after_the_end_are_known_as_long_as_the_sample_goes_on_with_them(
    said: list[int], after_end: list[int]
) -> None:
    ids = torch.tensor([5, 6, 7, 8, 9])  # the answer is 6, 7
    truth = tokens_to_come(ids, torch.tensor(said), Answer(1, 3), 3)
    assert truth.tolist() == [5, 6, 7, *after_end, -1, -1, -1]


def test_a_round_that_runs_into_the_unknown_is_told() -> None:
    truth = torch.tensor([10, 11, 12, 13, 14, -1, -1, -1, -1])
    drafted = torch.tensor([[0, 13, 0, 0], [0, 14, 0, 0], [0, 15, 0, 0]])
    counts = Counts(3)
    counts.add(drafted, truth, Answer(2, 4))
    assert (counts.drafts, counts.accepted_per_position, counts.unknown) == (1, [1, 1, 0], 1)


def test_answers_that_are_not_the_targets_own_are_told(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    prompt, said = case.turns[0]
    other = [(token + 1) % VOCAB for token in said]
    found = case.estimate([Sample("off", prompt + other, [0] * len(prompt) + [1] * len(other))], "off")
    assert found["greedy_share"] < 0.5
    assert "not its own greedy answers" in capsys.readouterr().err.replace("\n", " ")


def run(case: Case, store: Path, draft: Path, target: Path | None = None) -> int:
    paths = ["--store", store, "--model-path", target or case.target_folder, "--draft", draft]
    return main([*map(str, paths), "--output-dir", str(case.folder / "refused")])


@pytest.fixture(scope="module")
def store(case: Case) -> Path:
    prompt, said = case.turns[0]
    samples = [Sample("one", prompt + said, [0] * len(prompt) + [1] * len(said))]
    return tiny_drafts.make_store(case.folder / "one", case.target, case.target_folder, samples)


def test_another_target_is_refused(case: Case, store: Path) -> None:
    other = case.folder / "other"
    tiny_drafts.make_target(other, seed=9)
    with pytest.raises(FitError, match=r"digests\.model is .* in the store .* in the target"):
        run(case, store, case.draft, other)


def test_a_draft_of_other_layers_is_refused(case: Case, store: Path) -> None:
    changed = case.folder / "layers"
    shutil.copytree(case.draft, changed)
    config = tiny_drafts.settings(changed) | {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}
    (changed / "config.json").write_text(json.dumps(config))
    with pytest.raises(FitError, match=r"layer_ids.input of the store .* without \[1\]"):
        run(case, store, changed)


def test_a_draft_of_another_vocabulary_is_refused(case: Case, store: Path) -> None:
    changed = case.folder / "vocabulary"
    shutil.copytree(case.draft, changed)
    config = tiny_drafts.settings(changed)
    config["transformer_layer_config"]["vocab_size"] = 25
    (changed / "config.json").write_text(json.dumps(config))
    with pytest.raises(FitError, match=r"vocab_size is 25 in the draft .* and 24 in the target"):
        run(case, store, changed)


def test_a_damaged_draft_is_refused(case: Case, store: Path) -> None:
    changed = case.folder / "damaged"
    shutil.copytree(case.draft, changed)
    weights = changed / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(CheckpointError, match="damaged"):
        run(case, store, changed)
    weights.write_bytes(whole)
    tensors = load_file(weights)
    tensors["fc.weight"] = tensors["fc.weight"][:, :-1].contiguous()
    save_file(tensors, weights)
    with pytest.raises(CheckpointError, match=r"fc\.weight"):
        run(case, store, changed)
    del tensors["fc.weight"]
    save_file(tensors, weights)
    with pytest.raises(CheckpointError, match=r"fc\.weight is missing"):
        run(case, store, changed)
    (changed / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="speculators"):
        run(case, store, changed)
    with pytest.raises(InputError, match="no draft at"):
        run(case, store, case.folder / "nowhere")


def test_a_store_without_answers_is_refused(case: Case) -> None:
    prompt, _ = case.turns[0]
    samples = [Sample("none", prompt, [0] * len(prompt))]
    store = tiny_drafts.make_store(case.folder / "none", case.target, case.target_folder, samples)
    with pytest.raises(NoSamplesError, match="no answer"):
        run(case, store, case.draft)
