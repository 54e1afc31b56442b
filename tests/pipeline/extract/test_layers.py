"""Layer ids: the defaults are those that serving uses, and wrong ids are named."""

from __future__ import annotations

import pytest

from pipeline.errors import SettingsError
from pipeline.extract.layers import check_layer_ids, default_layer_ids, parse_layer_ids, to_input_numbering


@pytest.mark.parametrize(
    ("num_layers", "expected"),
    [(61, (1, 29, 57, 60)), (30, (1, 14, 26, 29)), (8, (1, 3, 4, 7)), (7, (1, 2, 3, 6))],
)
def test_defaults_are_the_served_inputs_2_half_and_n_minus_3_and_the_last_output(
    num_layers: int, expected: tuple[int, ...]
) -> None:
    assert default_layer_ids(num_layers) == expected
    assert to_input_numbering(expected)[:3] == (2, num_layers // 2, num_layers - 3)


@pytest.mark.parametrize("num_layers", range(4, 80))
def test_defaults_are_always_four_layers_the_target_has(num_layers: int) -> None:
    ids = default_layer_ids(num_layers)
    check_layer_ids(ids, num_layers)
    assert len(ids) == 4
    assert ids[-1] == num_layers - 1


@pytest.mark.parametrize("num_layers", [0, 1, 3])
def test_a_target_with_too_few_layers_asks_for_explicit_ids(num_layers: int) -> None:
    with pytest.raises(SettingsError, match=f"has {num_layers} decoder layers.*--layer-ids"):
        default_layer_ids(num_layers)


@pytest.mark.parametrize(
    "given", ["2 30 58 60", "2,30,58,60", " 2, 30  58,60,", ["2", "30", "58", "60"], ["2,30", 58, "60"]]
)
def test_spaces_and_commas_both_separate(given: str | list[str | int]) -> None:
    assert parse_layer_ids(given) == (2, 30, 58, 60)


@pytest.mark.parametrize("given", ["2 x", "1.5", "2-3", "²", "0x2"])
def test_what_is_no_whole_number_is_named(given: str) -> None:
    with pytest.raises(SettingsError, match="not a whole number"):
        parse_layer_ids(given)


@pytest.mark.parametrize("given", ["", " , ", []])
def test_no_layer_at_all_is_refused(given: str | list[str]) -> None:
    with pytest.raises(SettingsError, match="empty"):
        parse_layer_ids(given)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ((2, 61), "layer 61 does not exist.*0 to 60"),
        ((-1, 2), "layer -1 does not exist"),
        ((2, 30, 30, 60), "layer 30 is named twice; write --layer-ids 2 30 60"),
        ((30, 2, 58), "layer 2 comes after 30.*write --layer-ids 2 30 58"),
        ((), "empty"),
    ],
)
def test_bad_ids_are_refused_with_the_right_form(ids: tuple[int, ...], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_layer_ids(ids, 61)


def test_explicit_ids_of_the_original_system_pass_and_are_exported_one_higher() -> None:
    check_layer_ids((2, 30, 58, 60), 61)
    assert to_input_numbering((2, 30, 58)) == (3, 31, 59)
