"""Digests see a change of the data, of the target and of the stack."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from pipeline.errors import InputError
from pipeline.extract.digests import WHOLE_FILE_LIMIT, data_digest, model_digest, stack_identity


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "small.bin").write_bytes(b"small")
    (folder / "large.bin").write_bytes(bytes(WHOLE_FILE_LIMIT + 5))
    return folder


def test_the_data_digest_is_the_sha256_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert data_digest(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(InputError, match="cannot read"):
        data_digest(tmp_path / "nothing")


def test_the_model_digest_is_the_documented_hash(target: Path) -> None:
    mib = bytes(1 << 20)
    rows = [
        ["config.json", 2, hashlib.sha256(b"{}").hexdigest()],
        ["large.bin", WHOLE_FILE_LIMIT + 5, hashlib.sha256(mib + mib).hexdigest()],
        ["small.bin", 5, hashlib.sha256(b"small").hexdigest()],
    ]
    assert model_digest(target) == hashlib.sha256("".join(json.dumps(r) + "\n" for r in rows).encode()).hexdigest()


@pytest.mark.parametrize(("name", "at"), [("small.bin", 2), ("large.bin", 7), ("large.bin", -7), ("config.json", 0)])
def test_a_changed_byte_changes_the_model_digest(target: Path, name: str, at: int) -> None:
    before = model_digest(target)
    content = bytearray((target / name).read_bytes())
    content[at] ^= 1
    (target / name).write_bytes(content)
    assert model_digest(target) != before


def test_a_file_more_or_under_another_name_changes_the_model_digest(target: Path) -> None:
    before = model_digest(target)
    (target / "small.bin").rename(target / "other.bin")
    assert model_digest(target) != before
    (target / "other.bin").rename(target / "small.bin")
    assert model_digest(target) == before
    (target / "more.json").write_text("")
    assert model_digest(target) != before


def test_links_count_as_their_content_and_download_caches_not_at_all(target: Path, tmp_path: Path) -> None:
    before = model_digest(target)
    (target / "small.bin").rename(tmp_path / "blob")
    (target / "small.bin").symlink_to(tmp_path / "blob")
    (target / ".cache").mkdir()
    (target / ".cache" / "lock").write_text("x")
    assert model_digest(target) == before


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        model_digest(tmp_path)


def test_the_stack_is_read_from_the_environment_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EYAS_STACK_JSON", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(InputError, match=r"no stack's environment.*\./eyas extract"):
        stack_identity()
    (tmp_path / "stack.json").write_text('{"name": "extract", "digest": "abc"}')
    assert stack_identity() == {"name": "extract", "digest": "abc"}
    (tmp_path / "other.json").write_text('{"name": "other", "digest": "def"}')
    monkeypatch.setenv("EYAS_STACK_JSON", str(tmp_path / "other.json"))
    assert stack_identity()["name"] == "other"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"digest": 5}'])
def test_a_stack_file_that_says_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    monkeypatch.setenv("EYAS_STACK_JSON", str(tmp_path / "stack.json"))
    with pytest.raises(InputError, match=r"stack\.json"):
        stack_identity()
