"""What a container prints, handed on as it comes: as it is from a terminal, else the two streams kept apart."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Thread
from typing import Any


class Follower:
    """Copies the output of a container that is going to be started until it ends.

    The stream of an attachment ends with the container; that of its log may not, which is why it is not the log that is
    followed.
    """

    def __init__(self, api: Any, container: str, *, tty: bool, broken: Callable[[], None]) -> None:
        """Attach.

        Args:
            api: docker-py's low-level client.
            container: created and not started: what is printed before this would be lost.
            tty: whether it has a terminal.
            broken: called when nobody reads our output any more.
        """
        self._socket = api.attach_socket(container, params={"stdout": 1, "stderr": 1, "stream": 1})
        self._tty = tty
        self._broken = broken
        self._thread = Thread(target=self._copy, daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait for what is still on its way, at most so long."""
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self._socket.close()

    def _copy(self) -> None:
        from docker.utils.socket import frames_iter

        open_streams = {1, 2}
        try:
            for stream, data in frames_iter(self._socket, self._tty):  # type: ignore[no-untyped-call]
                if stream in open_streams and not _write(stream, data):
                    open_streams.discard(stream)
                    self._broken()
        except (OSError, ValueError):
            return  # the engine went away, which the one who waits for the container sees too


def _write(stream: int, data: bytes) -> bool:
    """Write all to a file descriptor; False if it has no reader any more."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(stream, view) :]
    except OSError:
        return False
    return True
