"""A worker extension of the kind that `worker_extension_cls` takes."""

from __future__ import annotations

from speculators.data_generation.custom_worker import HiddenStatesWorkerExtension


class CountingExtension(HiddenStatesWorkerExtension):
    """Counts the rows of each request where they are captured."""

    def _store_captured_states(self, aux_hidden_states):
        super()._store_captured_states(aux_hidden_states)
        for segments, _ in (self._captured_states or [])[-1:]:
            for request, _, start, end in segments:
                self.__dict__.setdefault("seen", {}).setdefault(request, 0)
                self.seen[request] += end - start

    def rows_seen(self):
        """Rows by request."""
        return self.seen
