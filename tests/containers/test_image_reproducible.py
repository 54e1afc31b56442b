"""The same commit gives the same image, byte for byte, wherever it lies; a changed byte gives another, and is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from ops.image import oci, reproducible
from ops.image.build import EXACT, build
from ops.image.errors import BuildError
from ops.paths import CHECKOUT
from tests.containers.light import build_light, copy_of_checkout, light

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def original(base_image: str, tmp_path_factory: pytest.TempPathFactory) -> oci.Image:
    folder = tmp_path_factory.mktemp("original")
    return build_light(copy_of_checkout(folder / "checkout"), base_image, folder / "image.tar", no_cache=True)


def test_two_builds_from_two_checkouts_are_one_image(original: oci.Image, base_image: str, tmp_path: Path) -> None:
    checkout = copy_of_checkout(tmp_path / "some" / "where else", umask=0o077)
    again = build_light(checkout, base_image, tmp_path / "image.tar", no_cache=True)
    assert oci.differences(original, again) == []
    assert again.digest == original.digest


def append(name: str, text: str) -> Change:
    def change(checkout: Path) -> None:
        with (checkout / name).open("a", encoding="utf-8") as file:
            file.write(text)

    return change


def edit(name: str, before: str, after: str) -> Change:
    def change(checkout: Path) -> None:
        path = checkout / name
        text = path.read_text(encoding="utf-8")
        assert before in text
        path.write_text(text.replace(before, after, 1), encoding="utf-8")

    return change


PATCH = "patches/speculators-0.3.0/0001-pass-is-encoder-decoder.patch"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (append("pipeline/files.py", "#\n"), ["COPY /source/ /", "opt/eyas/src/pipeline/files.py"]),
        (edit(PATCH, "Description: ", "Description:  "), ["provenance.json", "setting Labels: io.eyas.stack.digest"]),
        (append("stacks/extract/cpu.lock", "\n"), ["provenance.json", "setting Labels: io.eyas.stack.digest"]),
    ],
    ids=["pipeline", "patch", "lock"],
)
def test_one_changed_byte_changes_the_digest_and_its_layer_is_named(
    change: Change, named: list[str], original: oci.Image, base_image: str, tmp_path: Path
) -> None:
    checkout = copy_of_checkout(tmp_path / "checkout")
    change(checkout)
    changed = build_light(checkout, base_image, tmp_path / "image.tar")
    assert changed.digest != original.digest
    told = "\n".join(oci.differences(original, changed))
    for name in named:
        assert name in told, told


def test_a_rebuild_with_nothing_changed_builds_nothing(original: oci.Image, base_image: str, tmp_path: Path) -> None:
    again = build_light(copy_of_checkout(tmp_path / "checkout"), base_image, tmp_path / "image.tar")
    assert again.digest == original.digest


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built is the files as they are: a checkout in work has no commit for them."""
    monkeypatch.setattr(reproducible, "revision", lambda _: "0" * 40)
    monkeypatch.setattr(reproducible, "_clone", lambda checkout, _: copy_of_checkout(checkout))


@pytest.mark.usefixtures("committed")
def test_the_check_tells_the_digest_that_the_image_has_in_the_engine(
    base_image: str, engine: docker.DockerClient, tmp_path: Path
) -> None:
    name = "eyas-test-light:check"
    build(light(copy_of_checkout(tmp_path), base_image), f"type=image,name={name},{EXACT}", quiet=True)
    try:
        assert reproducible.check(light(CHECKOUT, base_image)) == engine.images.get(name).id
    finally:
        engine.images.remove(name, force=True)
    assert not engine.images.list(name=reproducible.NAME)


@pytest.mark.usefixtures("committed")
def test_the_check_names_what_differs(base_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unlike(checkout: Path, _: str) -> Path:
        copy = copy_of_checkout(checkout)
        (copy / "pipeline" / "files.py").write_text(f"# {len(str(checkout))}\n", encoding="utf-8")
        return copy

    monkeypatch.setattr(reproducible, "_clone", unlike)
    with pytest.raises(BuildError, match=r"COPY /source/ /: opt/eyas/src/pipeline/.*files"):
        reproducible.check(light(CHECKOUT, base_image))
