"""Which host paths a container sees, and how."""

# ruff: noqa: S108 - paths of a container
from __future__ import annotations

import os
from pathlib import Path

import pytest

from ops.container.errors import StartError
from ops.container.mounts import Mount, check, make_folders, same_path


def shown(mounts: list[Mount]) -> list[tuple[str, str]]:
    assert all(mount.source == mount.target for mount in mounts)
    return [(str(mount.target), "ro" if mount.read_only else "rw") for mount in mounts]


def test_what_is_read_is_read_only_and_what_is_written_is_not() -> None:
    found = same_path([Path("/data/t.jsonl"), Path("/models/kimi")], [Path("/runs/a")])
    assert sorted(shown(found)) == [("/data/t.jsonl", "ro"), ("/models/kimi", "ro"), ("/runs/a", "rw")]


def test_a_folder_inside_another_is_mounted_only_if_it_is_of_the_other_kind() -> None:
    inside = same_path([Path("/w"), Path("/w/a"), Path("/w/out/model")], [Path("/w/out"), Path("/w/out/b")])
    assert shown(inside) == [("/w", "ro"), ("/w/out", "rw"), ("/w/out/model", "ro")]
    assert shown(same_path([Path("/w")], [Path("/w")])) == [("/w", "rw")]


def test_outer_mounts_come_first() -> None:
    found = shown(same_path([Path("/w/out/deep/model")], [Path("/w/out")]))
    assert found == [("/w/out", "rw"), ("/w/out/deep/model", "ro")]


def test_links_out_of_a_snapshot_are_followed(tmp_path: Path) -> None:
    """A Hugging Face cache: the snapshot's files are links to blobs beside it."""
    hub = tmp_path / "hub" / "models--a--b"
    (hub / "blobs").mkdir(parents=True)
    (hub / "blobs" / "cafe").write_text("weights", encoding="utf-8")
    (tmp_path / "big").mkdir()
    (hub / "blobs" / "beef").symlink_to(tmp_path / "big" / "file")
    (tmp_path / "big" / "file").write_text("weights", encoding="utf-8")
    snapshot = hub / "snapshots" / "1"
    (snapshot / "sub").mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/cafe")
    (snapshot / "sub" / "model.safetensors").symlink_to("../../../blobs/beef")
    (snapshot / "same").symlink_to("config.json")
    found = shown(same_path([snapshot], []))
    assert sorted(found) == [(str(tmp_path / "big"), "ro"), (str(hub / "blobs"), "ro"), (str(snapshot), "ro")]


@pytest.mark.parametrize(
    "path", ["/", "/tmp", "/usr", "/usr/share/models", "/opt/eyas/env", "/cache/models", "/hf", "/dev/shm", "/etc"]
)
def test_a_path_that_is_the_images_own_is_refused_with_a_way_out(path: str) -> None:
    with pytest.raises(StartError, match="give it by a link elsewhere") as caught:
        same_path([Path(path)], [])
    assert caught.value.exit_code == 56


@pytest.mark.parametrize("path", ["/opt/models", "/tmp/work", "/var/data", "/run/media/disk", "/hfx"])
def test_a_path_beside_the_images_own_is_not(path: str) -> None:
    assert shown(same_path([Path(path)], [])) == [(path, "ro")]


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="none: it does not exist"):
        check([Mount(tmp_path / "none", tmp_path / "none", read_only=True)])


@pytest.mark.parametrize(
    ("mode", "read_only", "sentence"),
    [(0o000, True, "may not read it"), (0o400, True, "may not read it"), (0o500, False, "may not write it")],
)
def test_what_the_user_may_not_use_is_named_even_for_root(
    mode: int, read_only: bool, sentence: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    check([Mount(folder, folder, read_only=read_only)])
    folder.chmod(mode)
    with pytest.raises(StartError, match=sentence):
        check([Mount(folder, folder, read_only=read_only)])
    folder.chmod(0o700)


def test_folders_are_made_by_the_user(tmp_path: Path) -> None:
    make_folders([tmp_path / "a" / "b"])
    assert (tmp_path / "a" / "b").stat().st_uid == os.getuid()
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="cannot make"):
        make_folders([tmp_path / "file" / "b"])
