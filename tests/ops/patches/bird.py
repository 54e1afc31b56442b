"""A small package to patch, a series for it made by git (not by the tool under test), and the truth about both."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, bytes]

HEADER = b"""\
Description: %s
 in a few words
Author: A Falconer <falconer@example.org>
Forwarded: no
Last-Update: 2026-11-30
X-Eyas-Test: tests/series/test_bird.py::test_it
"""
WING = b"".join(b"feather %d\n" % number for number in range(1, 61))

UPSTREAM: Files = {
    "bird/__init__.py": b"",
    "bird/wing.py": WING,
    "bird/beak.py": b"one\r\ntwo\r\nthree\r\n",
    "bird/tail.py": b"first\nlast",
    "bird/egg.py": b"to be deleted\n",
    "bird/nest.py": b"VALUE = 1\n",
    "bird/untouched.py": b"as it was\n",
}
FIRST: Files = {
    **{path: content for path, content in UPSTREAM.items() if path != "bird/egg.py"},
    "bird/wing.py": WING.replace(b"feather 10\n", b"a better feather 10\n"),
    "bird/beak.py": b"one\r\n2\r\nthree\r\n",
    "bird/nest.py": b"VALUE = 2\n",
}
SECOND: Files = {
    **FIRST,
    "bird/wing.py": FIRST["bird/wing.py"].replace(b"feather 40\n", b"feather 40\nfeather 40 and a half\n"),
    "bird/tail.py": b"first\nlast\n",
    "bird/young/__init__.py": b"",
    "bird/young/chick.py": b"new\nand without a line end",
}
STEPS = [("0001-better-feather.patch", UPSTREAM, FIRST), ("0002-a-half.patch", FIRST, SECOND)]


def git(folder: Path, *arguments: str, data: bytes = b"") -> bytes:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(["git", *arguments], cwd=folder, env=env, input=data, check=True, capture_output=True).stdout


def write_tree(root: Path, files: Files) -> Path:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def sha(content: bytes | None) -> str:
    return "absent" if content is None else hashlib.sha256(content).hexdigest()


class Bird:
    """Makes installations and series of the distribution `bird`, and looks at them."""

    upstream, patched, steps = UPSTREAM, SECOND, STEPS

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def record_row(path: str, content: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        return f"{path},sha256={digest},{len(content)}"

    def install(self, name: str = "site", files: Files = UPSTREAM, version: str = "1.2.0") -> Path:
        """A site-packages folder with `bird`, and a neighbour that is none of its business."""
        site = write_tree(self.root / name, {**files, "other/__init__.py": b"neighbour\n"})
        info = f"bird-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: Bird\nVersion: {version}\n\ntext\n".encode()
        rows = ["../../bin/bird,sha256=abc,3", *(self.record_row(path, content) for path, content in files.items())]
        rows += [self.record_row(f"{info}/METADATA", metadata), f"{info}/RECORD,,"]
        write_tree(site, {f"{info}/METADATA": metadata, f"{info}/RECORD": "".join(f"{row}\n" for row in rows).encode()})
        return site

    def diff(self, before: Files, after: Files) -> bytes:
        """What `git diff` says in a repository of its own."""
        folder = self.root / f"repo-{len(list(self.root.iterdir()))}"
        folder.mkdir()
        git(folder, "init", "-q")
        git(write_tree(folder, before), "add", "-A", "-f")
        tree = git(folder, "write-tree").decode().strip()
        for path in set(before) - set(after):
            (folder / path).unlink()
        git(write_tree(folder, after), "add", "-A", "-f")
        return git(folder, "diff", "--cached", "--no-renames", tree)

    def series(self, steps: list[tuple[str, Files, Files]] | None = None, folder: str = "patches/bird-1.2.0") -> Path:
        steps = STEPS if steps is None else steps
        patches = {name: HEADER % name[5:-6].encode() + b"---\n" + self.diff(old, new) for name, old, new in steps}
        return self.series_of(patches, steps[0][1], steps[-1][2], folder)

    def series_of(self, patches: Files, before: Files, after: Files, folder: str = "patches/bird-1.2.0") -> Path:
        """A series folder from patch texts, with the hashes of the files that differ."""
        touched = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        lines = [
            f"{side} {sha(files.get(path))} {path}\n"
            for path in touched
            for side, files in (("upstream", before), ("patched", after))
        ]
        texts = {"series": "# the list\n" + "".join(f"{name}\n" for name in patches), "files.sha256": "".join(lines)}
        return write_tree(self.root / folder, {**patches, **{name: text.encode() for name, text in texts.items()}})

    @staticmethod
    def files(site: Path) -> dict[str, bytes]:
        """The package's own files."""
        return {
            path.relative_to(site).as_posix(): path.read_bytes() for path in site.glob("bird/**/*") if path.is_file()
        }

    @staticmethod
    def snapshot(site: Path) -> dict[str, tuple[object, ...]]:
        """Everything there is under a folder: kind, mode, inode, time and content."""
        result: dict[str, tuple[object, ...]] = {}
        for path in sorted(site.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else path.readlink() if path.is_symlink() else None
            result[str(path.relative_to(site))] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
            if path.is_dir():  # the time of a folder changes when a temporary file comes and goes
                result[str(path.relative_to(site))] = (status.st_mode, status.st_ino)
        return result

    def record(self, site: Path) -> list[str]:
        return next(site.glob("bird-*.dist-info/RECORD")).read_text().splitlines()
