"""Digests of files, folders, stores and targets, against hashes made by other means."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from ops.pipeline.digests import Digests, Source

MIB = 1 << 20


def of(path: Path, kind: str, digests: Digests | None = None) -> str | None:
    return (digests or Digests()).of(Source(path, kind))  # type: ignore[arg-type]


def test_a_file_has_the_digest_that_sha256sum_gives(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(3 * MIB + 5))
    said = subprocess.run(["sha256sum", str(file)], capture_output=True, text=True, check=True).stdout
    assert of(file, "file") == said.split()[0]


def test_a_settled_file_is_read_once_until_anything_about_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, digests = tmp_path / "file", Digests()
    file.write_text("one")
    later = time.time_ns() + 10_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    first = of(file, "file", digests)
    monkeypatch.setattr("ops.pipeline.digests._sha256", lambda path: "read again")
    assert of(file, "file", digests) == first
    before = file.stat()
    time.sleep(0.02)  # longer than a tick of the file system's clock
    file.write_text("two")
    # As a copy or an unpacked archive may have them: the same size and the same time of writing.
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert of(file, "file", digests) == "read again"


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    file, digests = tmp_path / "file", Digests()
    file.write_text("one")
    of(file, "file", digests)
    assert digests.known == {}


def test_a_folder_is_its_names_and_contents_and_links_are_what_they_point_to(tmp_path: Path) -> None:
    real = tmp_path / "checkpoints" / "step-9"
    real.mkdir(parents=True)
    (real / "config.json").write_text("{}")
    (real / "logs").mkdir()
    (real / "logs" / "events.jsonl").write_text("today")
    (tmp_path / "best").symlink_to("checkpoints/step-9")
    row = json.dumps(["config.json", hashlib.sha256(b"{}").hexdigest()]) + "\n"
    assert of(tmp_path / "best", "folder") == of(real, "folder") == hashlib.sha256(row.encode()).hexdigest()
    (real / "config.json").rename(real / "other.json")
    assert of(real, "folder") != hashlib.sha256(row.encode()).hexdigest()


def test_a_folder_with_nothing_in_it_and_a_link_to_nowhere_are_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "best").symlink_to("gone")
    assert of(tmp_path / "empty", "folder") is of(tmp_path / "best", "folder") is None


def test_a_store_is_what_its_manifest_says_while_its_shards_are_whole(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for number, size in enumerate((300, 12)):
        (tmp_path / "shards" / f"{number:06}.safetensors").write_bytes(bytes(size))
        (tmp_path / "shards" / f"{number:06}.json").write_text("{}")
    manifest = {"status": "complete", "counts": {"shard_bytes": 312}, "store_digest": "abc"}
    write = (tmp_path / "manifest.json").write_text
    write(json.dumps(manifest))
    assert of(tmp_path, "store") == "abc"
    write(json.dumps({**manifest, "status": "running"}))
    assert of(tmp_path, "store") is None
    write(json.dumps(manifest))
    os.truncate(tmp_path / "shards" / "000000.safetensors", 299)
    assert of(tmp_path, "store") is None


def test_a_large_file_of_a_target_counts_by_its_size_and_its_ends(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".cache").write_text("hidden")
    weights = bytearray(os.urandom(17 * MIB))
    (tmp_path / "model.safetensors").write_bytes(weights)
    rows = [
        ["config.json", 2, hashlib.sha256(b"{}").hexdigest()],
        ["model.safetensors", 17 * MIB, hashlib.sha256(bytes(weights[:MIB] + weights[-MIB:])).hexdigest()],
    ]
    right = hashlib.sha256("".join(json.dumps(row) + "\n" for row in rows).encode()).hexdigest()
    assert of(tmp_path, "target") == right
    weights[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(weights)
    assert of(tmp_path, "target") != right


def test_a_folder_without_a_config_is_no_target(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("weights")
    assert of(tmp_path, "target") is None
