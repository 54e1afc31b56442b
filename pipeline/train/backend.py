"""A store as speculators reads hidden states: the backend `eyas`, and the data set over it.

`speculators` asks a backend for a sample by its number and gets the target's states and tokens; here both are views of
the mapped shard, so that no second copy of a store lies on the disk or in memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hs_connectors import HiddenStatesBackend, HiddenStatesTransfer
from speculators.train.data import BaseDataset

from pipeline.store.dataset import HiddenStateDataset

BACKEND = "eyas"


class StoreTransfer(HiddenStatesTransfer):
    """The samples of one store, by their number in `HiddenStateDataset`."""

    def __init__(self, dataset: HiddenStateDataset) -> None:
        """The store must be open already, so that whoever asks for a sample's mask reads the same one."""
        self.dataset = dataset

    def get_cached(self, file_idx: int) -> dict[str, torch.Tensor]:
        """`hidden_states` `[rows, layers, hidden]` and `token_ids` int64 `[rows]`: views, the last layer un-normed.

        Raises:
            StoreDamagedError: the sample cannot be read.
        """
        sample = self.dataset[file_idx]
        return {"hidden_states": sample["hidden_states"], "token_ids": sample["input_ids"]}

    def get_generated(self, hs_transfer_params: dict[str, Any]) -> None:
        """Nothing is generated while training: every sample of a finished store is there."""


@HiddenStatesBackend.register(BACKEND)
class StoreBackend(HiddenStatesBackend):
    """`--hidden-states-backend eyas` of speculators' own trainer, its `--data-path` a store."""

    @staticmethod
    def add_train_args(parser: argparse.ArgumentParser) -> None:
        """None are needed."""

    @staticmethod
    def add_launch_args(parser: argparse.ArgumentParser) -> None:
        """None are needed."""

    @staticmethod
    def from_train_args(args: argparse.Namespace, data_path: str) -> StoreTransfer:
        """The transfer of the store at `data_path`."""
        return StoreTransfer(HiddenStateDataset(Path(data_path)))

    @staticmethod
    def build_kv_transfer_config(args: argparse.Namespace) -> dict[str, Any]:
        """A store is extracted before training, by `extract`.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("states come out of a store: make one with ./eyas extract")


class StoreDataset(BaseDataset):
    """Some samples of a store, as speculators' collation and models expect them."""

    def __init__(
        self, transfer: StoreTransfer, numbers: Sequence[int], max_len: int, hidden_states_dtype: torch.dtype
    ) -> None:
        """The samples with these numbers, in this order.

        Args:
            transfer: the store's.
            numbers: of the samples in it.
            max_len: most tokens in a batch.
            hidden_states_dtype: of the states in a batch.
        """
        self._transfer = transfer
        self.numbers = list(map(int, numbers))
        super().__init__(max_len, hidden_states_dtype)

    def __len__(self) -> int:
        return len(self.numbers)

    def _compute_approx_lengths(self) -> list[int]:
        rows: list[int] = self._transfer.dataset.rows[self.numbers].tolist()
        return rows

    def _get_raw_data(self, index: int) -> dict[str, torch.Tensor]:
        number = self.numbers[index]
        found = self._transfer.get_cached(number)
        states = found["hidden_states"]
        return {
            "hidden_states": states[:, :-1].flatten(1),
            "input_ids": found["token_ids"],
            "verifier_last_hidden_states": states[:, -1],
            "loss_mask": self._transfer.dataset[number]["loss_mask"].bool(),
        }
