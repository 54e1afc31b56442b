"""In vLLM's worker: a unit's states go to host memory while the forward pass goes on, and from there into the store.

Through the engine's RPC channel come a unit's tokens and masks and go its record's figures; no states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from speculators.data_generation.custom_worker import HiddenStatesWorkerExtension
from vllm.distributed import get_tp_group

from pipeline.errors import EngineError
from pipeline.extract.engines.staging import HostBuffer, Staging
from pipeline.store.committer import Committed, Committer
from pipeline.store.records import UnitOrder
from pipeline.store.spec import StoreSpec


class StoringWorkerExtension(HiddenStatesWorkerExtension):
    """Mixed into vLLM's worker class; its methods are called on every rank, and only tensor-parallel rank 0 acts.

    Between `begin_unit` and `end_unit` (or `drop_unit`) captured rows go to the unit's buffer; at other times
    speculators' own way of collecting them is in force.
    """

    _committer: Committer | None = None
    _staging: Staging
    _order: UnitOrder | None = None
    _buffer: HostBuffer
    _places: dict[str, int]
    _fault: str | None = None

    def open_store(self, spec: StoreSpec, rows: int, cpus: Iterable[int]) -> None:
        """Become the store's writer.

        Args:
            spec: of the store.
            rows: most in a unit.
            cpus: those that hashing and writing may use; this process may be bound to fewer.
        """
        if get_tp_group().rank_in_group == 0:
            layers, dtype = len(spec.layer_ids), getattr(torch, spec.dtype)
            self._staging = Staging(self.model_runner.device, rows, layers, spec.hidden_size, dtype)
            self._committer = Committer(spec, cpus)

    def begin_unit(self, order: UnitOrder) -> None:
        """Capture a unit from now on; waits while both buffers hold units that are not written yet."""
        if self._committer is not None:
            self._buffer = self._staging.take(order.rows)
            self._order, self._places, self._fault = order, {}, None

    def place_rows(self, places: Iterable[tuple[str, int]]) -> None:
        """Say where requests' rows go: (request id, its first row in the unit)."""
        if self._committer is not None:
            self._places.update(places)

    def end_unit(self) -> Committed | None:
        """Hand the unit to the writer.

        Raises:
            RuntimeError: a row was not computed.
        """
        if self._committer is None:
            return None
        assert self._order is not None, "end_unit() without begin_unit()"  # noqa: S101 - a bug, not a user's error
        rows, buffer = self._order.rows, self._buffer
        if self._fault is not None:
            return Committed([], EngineError(self._fault))
        if missing := rows - int(buffer.filled[:rows].sum()):
            raise RuntimeError(f"{missing} of {rows} rows were not computed")
        free = partial(self._staging.give_back, buffer)
        order, self._order = self._order, None
        self._committer.submit(order, buffer.states[:rows], buffer.norms[:rows], free, ready=buffer.wait)
        return self._committer.committed()

    def drop_unit(self) -> None:
        """Forget the unit; without one nothing happens."""
        if self._order is not None:
            self._buffer.wait()
            self._staging.give_back(self._buffer)
            self._order = None

    def finish_units(self) -> Committed | None:
        """Wait until all units are on the disk."""
        return self._committer.committed(wait=True) if self._committer is not None else None

    def _store_captured_states(self, aux_hidden_states: Sequence[torch.Tensor]) -> None:
        """Called by the hooks, once a forward pass."""
        if self._order is None:
            super()._store_captured_states(aux_hidden_states)
            return
        wanted, found = self._buffer.states.dtype, aux_hidden_states[0].dtype
        if wanted != found:
            self._fault = f"the target's states are {found}, not {wanted}: this target needs another --dtype"
            return
        batch = self.model_runner.input_batch
        starts = self.model_runner.query_start_loc.np
        segments = [
            (
                self._places[batch.req_ids[at]] + int(batch.num_computed_tokens_cpu[at]),
                int(starts[at]),
                int(starts[at + 1]),
            )
            for at in range(batch.num_reqs)
        ]
        self._staging.copy(aux_hidden_states, segments, self._buffer)
