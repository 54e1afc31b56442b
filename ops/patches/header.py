"""The header of a patch: DEP-3 fields (Debian enhancement proposal 3) and our own `X-Eyas-Test`.

`X-Eyas-Test` is the pytest node id, relative to the repository, of the test that fails when the patch is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from ops.patches.errors import MalformedSeriesError

TEST_FIELD = "X-Eyas-Test"
_KNOWN = ("Description", "Origin", "Author", "Bug", "Forwarded", "Applied-Upstream", "Reviewed-by", "Last-Update")
_NEEDED = (("Description",), ("Origin", "Author"), ("Forwarded", "Applied-Upstream"), ("Last-Update",), (TEST_FIELD,))
_TEST_ID = re.compile(r"(?!/)(?!.*\.\./)[^\s:]+\.py(::[^\s:]+)+")


@dataclass(frozen=True)
class Header:
    """The fields of a patch's header; a folded value keeps its line ends."""

    fields: Mapping[str, str]

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.fields["Description"].split("\n")[0]

    @property
    def test(self) -> str:
        """The pytest node id of the test that needs this patch."""
        return self.fields[TEST_FIELD]


def parse(patch: str, data: bytes) -> Header:
    """Read and check a header.

    Args:
        patch: the patch's name, for messages.
        data: everything before the line `---`.

    Raises:
        MalformedSeriesError: a field is missing, unknown, empty, given twice or not in its form.
    """
    try:
        fields = _fields(patch, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MalformedSeriesError(f"{patch}: the header is not UTF-8 ({error.reason} at byte {error.start})") from None
    for names in _NEEDED:
        if not any(name in fields for name in names):
            raise MalformedSeriesError(f"{patch}: the header has no field {' or '.join(names)}; add it")
    _check_date(patch, fields["Last-Update"])
    if not _TEST_ID.fullmatch(fields[TEST_FIELD]):
        raise MalformedSeriesError(
            f"{patch}: {TEST_FIELD} {fields[TEST_FIELD]!r} is no pytest node id (tests/.../test_x.py::test_name)"
        )
    return Header(fields)


def render(fields: Mapping[str, str]) -> bytes:
    """The text of a header. A value's further lines are folded; an empty one becomes DEP-3's ` .`."""
    lines = []
    for name, value in fields.items():
        first, *rest = value.strip().split("\n")
        lines += [f"{name}: {first}", *(f" {line.strip() or '.'}" for line in rest)]
    return "".join(f"{line}\n" for line in lines).encode()


def _fields(patch: str, text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        start = f"{patch} line {number}"
        if line.startswith(" ") and name:
            fields[name] += "\n" + ("" if line == " ." else line[1:])
            continue
        name, colon, value = line.partition(":")
        if not colon or not (name in _KNOWN or name == TEST_FIELD or re.fullmatch(r"Bug-[A-Za-z]+", name)):
            raise MalformedSeriesError(f"{start}: {line!r} is no known header field; see DEP-3")
        if name in fields or not value.strip():
            fault = "is given twice" if name in fields else "is empty"
            raise MalformedSeriesError(f"{start}: the field {name} {fault}")
        fields[name] = value.strip()
    return fields


def _check_date(patch: str, value: str) -> None:
    try:
        good = date.fromisoformat(value).isoformat() == value
    except ValueError:
        good = False
    if not good:
        raise MalformedSeriesError(f"{patch}: Last-Update {value!r} is no date in the form YYYY-MM-DD")
