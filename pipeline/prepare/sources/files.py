"""What the user named as inputs, and the files that it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import InputError, SettingsError
from pipeline.prepare.formats import FORMATS
from pipeline.prepare.source import COMPRESSED, stem

HUB = "hf:"
ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet", ".arrow", ".feather")
"""of the files that are taken out of a folder"""
ABOUT = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
"""files of a data set's folder that tell about it and have no rows"""
_OPTIONS = re.compile(r"(?:,(?:weight|cap|format)=[^,]*)*\Z")


@dataclass(frozen=True)
class Part:
    """One file.

    Attributes:
        path: where it is.
        name: how its rows are told apart from those of other files.
        form: the name of its rows' format, where it was given.
        hub: its rows are those of a data set of the hub, `org/name:split`.
        revision: the commit of that data set.
    """

    path: Path
    name: str
    form: str | None = None
    hub: str | None = None
    revision: str | None = None

    @property
    def is_json(self) -> bool:
        """Whether it may be one JSON document and not lines of them."""
        name = self.name.lower()
        for ending in COMPRESSED:
            name = name.removesuffix(ending)
        return name.endswith(".json")


@dataclass(frozen=True)
class Input:
    """One `--input`.

    Attributes:
        given: the place, as the user wrote it: a file, a folder, or `hf:org/name[:split]`.
        parts: its files, in order.
        weight: the share of its rows that is taken.
        cap: no more than so many rows are taken.
    """

    given: str
    parts: tuple[Part, ...]
    weight: float = 1.0
    cap: int | None = None

    @property
    def choices(self) -> str:
        """What was chosen for it, as part of what a result depends on."""
        forms = sorted({part.form for part in self.parts if part.form})
        named = [f"weight={self.weight:g}"] * (self.weight != 1) + [f"cap={self.cap}"] * (self.cap is not None)
        return ",".join([*named, *(f"format={form}" for form in forms)])


def inputs_of(given: list[str], form: str | None) -> list[Input]:
    """Read every `--input PLACE[,weight=W][,cap=N][,format=F]`.

    Args:
        given: as the user wrote them.
        form: of rows where an input names none itself.

    Raises:
        SettingsError: an option has no such value, or two files would give rows the same ids.
        InputError: a place is missing, or a folder without a file of rows.
    """
    inputs = [_input(text, form) for text in given]
    seen: dict[str, Part] = {}
    for part in (part for one in inputs for part in one.parts):
        if (name := stem(part.name)) in seen:
            raise SettingsError(f"--input {seen[name].path} and {part.path} would give rows the same ids: rename one")
        seen[name] = part
    return inputs


def _input(text: str, form: str | None) -> Input:
    place, chosen = _split(text)
    options = dict(option.split("=", 1) for option in chosen.split(",")[1:])
    form = options.get("format", form)
    if form is not None and form not in FORMATS:
        raise SettingsError(f"format {form!r} of --input {text}: there are {', '.join(FORMATS)}")
    weight, cap = _weight(options.get("weight", "1"), text), _cap(options.get("cap"), text)
    return Input(place, tuple(_parts(place, form)), weight, cap)


def _split(text: str) -> tuple[str, str]:
    """A place, which may have commas in it, and the options behind it."""
    at = next(match.start() for match in _OPTIONS.finditer(text))
    return text[:at], text[at:]


def _weight(value: str, text: str) -> float:
    try:
        weight = float(value)
    except ValueError:
        weight = 0.0
    if not 0 < weight <= 1:
        raise SettingsError(f"weight {value!r} of --input {text}: give a share above 0, at most 1")
    return weight


def _cap(value: str | None, text: str) -> int | None:
    if value is not None and (not value.isdecimal() or not int(value)):
        raise SettingsError(f"cap {value!r} of --input {text}: give a number of rows, at least 1")
    return None if value is None else int(value)


def _parts(place: str, form: str | None) -> Iterator[Part]:
    if place.startswith(HUB):
        name, _, split = place.removeprefix(HUB).partition(":")
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or (split and not re.fullmatch(r"[\w.-]+", split)):
            raise SettingsError(f"--input {place}: name a data set of the hub as hf:owner/name or hf:owner/name:split")
        from pipeline.prepare.sources.hub import revision

        named = f"{name}:{split or 'train'}"
        yield Part(Path(place), named, form, named, revision(named))
        return
    path = Path(place)
    if not path.is_dir():
        yield Part(path, _printable(path.name), form)
        return
    found = sorted(_files_in(path), key=lambda file: file.relative_to(path).as_posix())
    if not found:
        raise InputError(
            f"no file of rows in {path}: they end with {', '.join(ENDINGS)}, or with .gz or .zst behind it"
        )
    for file in found:
        yield Part(file, _printable(f"{path.resolve().name}/{file.relative_to(path).as_posix()}"), form)


def _files_in(folder: Path) -> Iterator[Path]:
    try:
        for path in folder.iterdir():
            if path.name.startswith(".") or path.name in ABOUT:
                continue
            if path.is_dir():
                yield from _files_in(path)
            elif _plain(path.name).endswith(ENDINGS):
                yield path
    except OSError as error:
        raise InputError(f"cannot read {error.filename or folder}: {error.strerror}") from error


def _printable(name: str) -> str:
    """A file's name as text: Linux lets it be any bytes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _plain(name: str) -> str:
    return name[: -len(Path(name).suffix)] if name.endswith(COMPRESSED) else name
