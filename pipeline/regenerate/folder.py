"""The stage's folder: finished units while it runs, and what they are put together to.

`run.json` says what the units of `units/` were made from. When all are there, `conversations.jsonl` and
`rejected.jsonl` are written from them, then `conversations.header.json`, and then the units go.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.errors import InputError, NoSamplesError, StoreDamagedError
from pipeline.prepare.source import file_sha256
from pipeline.regenerate.account import Account
from pipeline.regenerate.identity import Json, check_same
from pipeline.regenerate.unit import Answered, Outcome, from_line, to_line
from pipeline.store.durable import write_synced

CONVERSATIONS = "conversations.jsonl"
REJECTED = "rejected.jsonl"
HEADER = "conversations.header.json"
RUN = "run.json"
UNITS = "units"


class ResultFolder:
    """A folder that a run holds the lock of."""

    def __init__(self, folder: Path, identity: Json) -> None:
        """Open it.

        Args:
            folder: exists.
            identity: of the run.

        Raises:
            StoreMismatchError: it has the result of another run, finished or not.
            StoreDamagedError: it has a finished result that is not as it was written.
        """
        self.path, self._identity = folder, identity
        self.header = _read(folder / HEADER)
        earlier = self.header if self.header is not None else _read(folder / RUN)
        if earlier is not None:
            check_same(folder, earlier, identity)
        if self.header is not None:
            self._check_whole(self.header)
            self._remove_units()

    def begin(self) -> None:
        """Say what the units to come are made from."""
        if not (self.path / RUN).exists():
            write_synced(self.path / RUN, [_pretty(self._identity)])
        (self.path / UNITS).mkdir(exist_ok=True)

    def has(self, unit: int) -> bool:
        """Whether a unit is finished."""
        return self._unit(unit).exists()

    def add(self, unit: int, outcomes: Sequence[Outcome]) -> None:
        """Have a unit on the disk.

        Raises:
            NoSpaceError, SettingsError: it cannot be written.
        """
        write_synced(self._unit(unit), map(to_line, outcomes))

    def outcomes(self, units: int) -> Iterator[Outcome]:
        """The outcomes of the first so many units, in order of the input."""
        for unit in range(units):
            with self._unit(unit).open("rb") as lines:
                yield from map(from_line, lines)

    def finish(self, units: int, rows_read: int, more: Json) -> Account:
        """Put the result together.

        Args:
            units: how many there are.
            rows_read: of the input.
            more: fields of the header beside identity and counts.

        Raises:
            AccountError: a row is neither answered nor rejected.
            NoSamplesError: no row was answered.
            NoSpaceError, SettingsError: it cannot be written.
        """
        account = Account()
        for outcome in self.outcomes(units):
            account.add(outcome)
        counts = account.close(rows_read)
        rejected = write_synced(self.path / REJECTED, self._rejected(units))
        if not account.conversations:
            self._remove_units()
            reasons = "; ".join([*account.lines(rows_read)][1:]) or "the input is empty"
            raise NoSamplesError(f"no row was answered: {reasons} (all of them: {self.path / REJECTED})")
        conversations = write_synced(self.path / CONVERSATIONS, self._conversations(units))
        digests = {"conversations_sha256": conversations.sha256, "rejected_sha256": rejected.sha256}
        self.header = {**self._identity, **digests, **counts, **more}
        write_synced(self.path / HEADER, [_pretty(self.header)])
        self._remove_units()
        return account

    def _conversations(self, units: int) -> Iterator[bytes]:
        for outcome in self.outcomes(units):
            if isinstance(outcome, Answered):
                yield _line({"id": outcome.id, "messages": outcome.messages})

    def _rejected(self, units: int) -> Iterator[bytes]:
        for outcome in self.outcomes(units):
            if not isinstance(outcome, Answered):
                yield _line(dataclasses.asdict(outcome))

    def _unit(self, unit: int) -> Path:
        return self.path / UNITS / f"{unit:06d}.jsonl"

    def _remove_units(self) -> None:
        if (self.path / UNITS).exists():
            shutil.rmtree(self.path / UNITS)
        (self.path / RUN).unlink(missing_ok=True)

    def _check_whole(self, header: Json) -> None:
        for name, field in ((CONVERSATIONS, "conversations_sha256"), (REJECTED, "rejected_sha256")):
            try:
                found = file_sha256(self.path / name)
            except InputError:
                found = "missing"
            if found != header.get(field):
                raise StoreDamagedError(
                    f"{self.path / name} is not what was written ({found[:12]}, not {str(header.get(field))[:12]}): "
                    f"restore it, or remove {self.path / HEADER} to have all answered again"
                )


def _read(file: Path) -> Json | None:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreDamagedError(f"{file} is damaged ({error}): restore it, or use another --output-dir") from error
    if not isinstance(content, dict):
        raise StoreDamagedError(f"{file} is no object of JSON: restore it, or use another --output-dir")
    return content


def _line(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _pretty(value: Json) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"
