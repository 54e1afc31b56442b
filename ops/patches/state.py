"""What is on the disk, compared with what the series starts from and leads to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ops.patches.errors import UpstreamChangedError
from ops.patches.fit import fit, reverse
from ops.patches.hashes import sha256
from ops.patches.package import Installed
from ops.patches.series import Series

Contents = Mapping[str, "bytes | None"]  # by path relative to site-packages; None where there is no file


class FileState(Enum):
    """One file's state."""

    UPSTREAM = "upstream"
    PATCHED = "patched"
    CHANGED = "changed"


class State(Enum):
    """The state of all files together."""

    UNPATCHED = "unpatched"
    APPLIED = "applied"
    PARTLY = "partly applied"
    CHANGED = "upstream file changed"
    WRONG_VERSION = "wrong version"


def read(series: Series, installed: Installed) -> dict[str, bytes | None]:
    """The files that the series touches, as they are."""
    return {path: installed.read(path) for path in sorted(series.touched)}


def file_states(series: Series, contents: Contents) -> dict[str, FileState]:
    """Each touched file's state by its sha256."""
    states = {}
    for path, content in contents.items():
        known, found = series.hashes[path], sha256(content)
        states[path] = (
            FileState.UPSTREAM
            if found == known.upstream
            else FileState.PATCHED
            if found == known.patched
            else FileState.CHANGED
        )
    return states


def overall(states: Mapping[str, FileState]) -> State:
    """All files' state in a word; one changed file outweighs the rest."""
    found = set(states.values())
    if FileState.CHANGED in found:
        return State.CHANGED
    if len(found) > 1:
        return State.PARTLY
    return State.APPLIED if FileState.PATCHED in found else State.UNPATCHED


def refuse_changed(series: Series, installed: Installed, contents: Contents) -> None:
    """Raise if a file is neither upstream's nor the patched one.

    Raises:
        UpstreamChangedError: names the first such file.
    """
    for path, state in file_states(series, contents).items():
        if state is FileState.CHANGED:
            known, found = series.hashes[path], sha256(contents[path])
            raise UpstreamChangedError(
                f"{installed.site / path} is neither upstream's nor the patched file: sha256 {found or 'absent'}, "
                f"upstream {known.upstream or 'absent'}, patched {known.patched or 'absent'}; "
                f"reinstall {series.package} {series.version}"
            )


def stages(series: Series, upstream: Contents) -> list[dict[str, bytes | None]]:
    """The files before the first patch, after the first, and so on; patches to files not in `upstream` are passed over.

    Raises:
        DoesNotFitError: a hunk does not match at its line.
    """
    result = [dict(upstream)]
    for patch in series.patches:
        after = dict(result[-1])
        for diff in patch.diffs:
            if diff.path in after:
                after[diff.path] = fit(patch.name, diff, after[diff.path])
        result.append(after)
    return result


def upstream_of(series: Series, installed: Installed) -> dict[str, bytes | None]:
    """Upstream's contents of the touched files, from an installation that is unpatched or has the series applied.

    Raises:
        UpstreamChangedError: a file is neither.
        DoesNotFitError: the series cannot be undone.
    """
    contents = read(series, installed)
    refuse_changed(series, installed, contents)
    states = file_states(series, contents)
    for patch in reversed(series.patches):
        for diff in patch.diffs:
            if states[diff.path] is FileState.PATCHED:
                contents[diff.path] = fit(patch.name, reverse(diff), contents[diff.path])
    refuse_changed(series, installed, contents)
    return contents
