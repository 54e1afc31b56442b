from __future__ import annotations

import pytest

from pipeline.errors import SettingsError
from pipeline.train.split import split

IDS = [f"sample-{number}" for number in range(2000)]


def test_every_sample_is_in_one_of_the_two_parts():
    training, validation = split(IDS, seed=0, share=0.1)
    assert sorted([*training, *validation]) == list(range(2000))


def test_about_the_share_asked_for_validates():
    _, validation = split(IDS, seed=0, share=0.1)
    assert 150 < len(validation) < 250  # 3.7 standard deviations of a binomial of 2,000 and 0.1


def test_a_sample_stays_in_its_part_when_others_are_added_or_the_order_changes():
    def part(ids: list[str]) -> set[str]:
        return {ids[number] for number in split(ids, seed=3, share=0.2)[1]}

    assert part(IDS[:1000][::-1]) == part(IDS) & set(IDS[:1000])


def test_samples_of_one_conversation_stay_together():
    ids = [f"{sample}#{number}" for sample in IDS for number in (1, 2, 13)]
    _, validation = split(ids, seed=0, share=0.1)
    assert {ids[number] for number in validation} == {
        f"{IDS[number]}#{part}" for number in split(IDS, seed=0, share=0.1)[1] for part in (1, 2, 13)
    }


def test_another_seed_is_another_split():
    assert split(IDS, seed=0, share=0.1)[1].tolist() != split(IDS, seed=1, share=0.1)[1].tolist()


def test_a_split_with_an_empty_part_is_refused():
    with pytest.raises(SettingsError, match="leaves none of 1 samples to"):
        split(["only"], seed=0, share=0.5)
