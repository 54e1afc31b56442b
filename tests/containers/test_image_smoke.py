"""The smoke target ends well for the image as it is, and fails for images that are not what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from ops.image.build import build
from ops.image.errors import BuildError
from ops.stack.stages import STACK_NAMES
from tests.containers.conftest import run_eyas
from tests.containers.light import copy_of_checkout, light


def smoke(checkout: Path, base: str, stack: str = "extract") -> None:
    build(replace(light(checkout, base, stack), target="smoke"), "type=cacheonly", quiet=True)


# serve has no patches; its image is built by the same steps.
@pytest.mark.parametrize("stack", STACK_NAMES)
def test_a_light_image_passes(stack: str, base_image: str, tmp_path: Path) -> None:
    smoke(copy_of_checkout(tmp_path), base_image, stack)


SITE = "$(echo /opt/eyas/env/lib/python3*/site-packages)"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("COPY --link --from=patched /patched/ /\n", "", "speculators"),
        (
            "USER 65532:65532\n",
            f"RUN d={SITE}/extra-1.0.dist-info && mkdir $d "
            "&& printf 'Metadata-Version: 2.1\\nName: extra\\nVersion: 1.0\\n' > $d/METADATA\n",
            "extra is 1.0 and not there",
        ),
        (
            "USER 65532:65532\n",
            f"RUN echo '# changed' >> {SITE}/speculators/data_generation/custom_worker.py\n",
            "custom_worker.py",
        ),
        (
            "USER 65532:65532\n",
            "RUN find /opt/eyas/env -name 'custom_worker*.pyc' -delete\n",
            "has no bytecode made from it",
        ),
        (
            "USER 65532:65532\n",
            f"RUN python -m compileall -q -f --invalidation-mode timestamp {SITE}/speculators/data_generation\n",
            "is bytecode with a time in it",
        ),
        ("USER 65532:65532\n", "RUN echo ' ' >> /opt/eyas/sbom.cdx.json\n", "sbom.cdx.json is not the one"),
        ("USER 65532:65532\n", "RUN rm -r /opt/eyas/src/pipeline\n", "pipeline.__main__ cannot be imported"),
    ],
    ids=["unpatched", "a package more", "an edited file", "no bytecode", "dated bytecode", "another bill", "no stages"],
)
def test_an_image_that_is_not_what_it_says_fails(
    before: str, after: str, told: str, base_image: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkout = copy_of_checkout(tmp_path)
    dockerfile = checkout / "Dockerfile"
    text = dockerfile.read_text(encoding="utf-8")
    assert text.count(before) == 1
    dockerfile.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(BuildError, match="smoke target"):
        smoke(checkout, base_image)
    assert told in capfd.readouterr().err


def test_arguments_that_do_not_fit_the_files_fail_the_build(
    base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ops.image.build.pipeline_digest", lambda _: "0" * 64)
    with pytest.raises(BuildError):
        build(light(copy_of_checkout(tmp_path), base_image), "type=cacheonly", quiet=True)
    assert "argument PIPELINE_DIGEST is 0000" in capfd.readouterr().err


def test_the_full_image_passes(cpu_image: str, base_image: str) -> None:
    told = run_eyas("smoke", "--accelerator", "cpu", "--base-image", base_image, "--network", "host")
    assert "8 labels as in provenance.json" in told
    assert "starts as user 54321:54321, read-only" in told


def test_the_bill_of_materials_lists_what_is_in_the_image(engine: docker.DockerClient, cpu_image: str) -> None:
    # The image's own Python and dpkg are asked, with none of our code.
    ask = (
        "import importlib.metadata as m, json, subprocess as s; "
        "d = s.run(['dpkg-query', '-W', '-f', '${Package} ${Version}\\n'], capture_output=True, text=True).stdout; "
        "print(json.dumps([sorted((x.metadata['Name'].lower().replace('_', '-').replace('.', '-'), x.version) "
        "for x in m.distributions()), sorted(l.split() for l in d.splitlines()), "
        "open('/opt/eyas/sbom.cdx.json').read(), open('/opt/eyas/provenance.json').read()]))"
    )
    said = engine.containers.run(
        cpu_image, ["-c", ask], entrypoint="/opt/eyas/env/bin/python", network_mode="none", remove=True
    )
    python, debian, bill, provenance = json.loads(said)
    components = json.loads(bill)["components"]
    listed = {kind: [c for c in components if c["purl"].startswith(f"pkg:{kind}/")] for kind in ("pypi", "deb")}
    assert sorted([c["name"], c["version"]] for c in listed["pypi"]) == python
    assert sorted([c["name"].split(":")[0], c["version"]] for c in listed["deb"]) == debian
    assert len(python) > 150
    assert json.loads(provenance)["built"] == {"only": [], "source_builds": "skip"}
