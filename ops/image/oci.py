"""An image in a tar file of the OCI layout, as buildx writes it: its digest, its layers, where two images differ."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ops.image.errors import BuildError


@dataclass(frozen=True)
class Layer:
    """One layer of an image."""

    digest: str
    """of the layer as stored, sha256:..."""
    made_by: str
    """the Dockerfile's instruction"""


@dataclass(frozen=True)
class Image:
    """What an image's manifest says."""

    path: Path
    digest: str
    """of the manifest, sha256:..."""
    layers: tuple[Layer, ...]
    config: Any


def read(path: Path) -> Image:
    """Read an image whose file has one manifest."""
    with tarfile.open(path) as tar:
        (entry,) = _json(tar, "index.json")["manifests"]
        manifest = _json(tar, _blob(entry["digest"]))
        config = _json(tar, _blob(manifest["config"]["digest"]))
    # Instructions such as ENV make no layer.
    made_by = [step.get("created_by", "") for step in config["history"] if not step.get("empty_layer")]
    layers = zip((layer["digest"] for layer in manifest["layers"]), made_by, strict=True)
    return Image(path, entry["digest"], tuple(Layer(digest, _short(text)) for digest, text in layers), config)


def differences(one: Image, two: Image) -> list[str]:
    """One line for each layer that differs, with the first files that do, and one for each differing setting."""
    found = []
    for number, (first, second) in enumerate(zip(one.layers, two.layers, strict=False), start=1):
        if first.digest != second.digest:
            names = _differing_files(one.path, first, two.path, second)
            files = (
                f": {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
                if names
                else ": the times or order of files"
            )
            found.append(f"layer {number}, {second.made_by}{files}")
    if len(one.layers) != len(two.layers):
        found.append(f"{len(one.layers)} layers and {len(two.layers)}")
    settings = {key for image in (one, two) for key in image.config["config"]}
    for key in sorted(settings):
        first, second = (image.config["config"].get(key) for image in (one, two))
        if first != second:
            found.append(f"setting {key}: {_unlike(first, second)}")
    return found


def _unlike(first: Any, second: Any) -> str:
    if isinstance(first, dict) and isinstance(second, dict):
        return ", ".join(sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key)))
    return f"{first} and {second}"


def _differing_files(one: Path, first: Layer, two: Path, second: Layer) -> list[str]:
    before, after = dict(_files(one, first)), dict(_files(two, second))
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _files(path: Path, layer: Layer) -> Iterator[tuple[str, tuple[object, ...]]]:
    with (
        tarfile.open(path) as outer,
        _member(outer, _blob(layer.digest)) as blob,
        tarfile.open(fileobj=blob, mode="r:*") as tar,
    ):
        for entry in tar:
            content = tar.extractfile(entry) if entry.isreg() else None
            what = _sha256(content) if content else entry.linkname
            yield entry.name, (entry.type, entry.mode, entry.uid, entry.gid, what)


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _json(tar: tarfile.TarFile, name: str) -> Any:
    with _member(tar, name) as file:
        return json.load(file)


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    if file is None:
        raise BuildError(f"the image has no file {name}: it was not written whole; build it again")
    return file


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _short(made_by: str) -> str:
    text = " ".join(made_by.removeprefix("RUN ").split())
    if made_by.startswith(("COPY", "ADD", "WORKDIR")):
        return text.removesuffix(" # buildkit")
    # A RUN's history begins with its arguments; what it runs says more.
    return f"RUN ...{text.removesuffix(' # buildkit')[-90:]}"
