"""The bill of materials: every Python distribution and Debian package that is installed, in CycloneDX's form.

Written by CycloneDX's own library. The same content gives the same bytes: no time of making, and a serial number made
from the content.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterable
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "eyas:sbom")


def debian_packages() -> dict[str, str]:
    """Name to version of the operating system's packages."""
    form = "${binary:Package}\t${Version}\t${db:Status-Status}\n"
    said = subprocess.run(["dpkg-query", "-W", "-f", form], check=True, capture_output=True, text=True).stdout
    lines = (line.split("\t") for line in said.splitlines())
    return {name: version for name, version, status in lines if status == "installed"}


def make(name: str, digest: str, python: dict[str, str], debian: dict[str, str], hashes: dict[str, str]) -> str:
    """The bill as JSON.

    Args:
        name: of the whole: the stack.
        digest: hex sha256 of the stack.
        python: see `ops.stack.check.installed_packages`.
        debian: see `debian_packages`.
        hashes: sha256 of what a Python package was installed from, where there is only one.
    """
    components = [
        *(
            _component(f"python:{n}", n, v, PackageURL("pypi", name=n, version=v), hashes.get(n))
            for n, v in python.items()
        ),
        *(_component(f"deb:{n}", n, v, PackageURL("deb", name=n, version=v), None) for n, v in debian.items()),
    ]
    whole = Component(type=ComponentType.CONTAINER, name=name, version=digest, bom_ref="whole")
    bom = Bom(serial_number=uuid.uuid5(NAMESPACE, f"{name} {digest} {sorted(python.items())} {sorted(debian.items())}"))
    bom.metadata.component = whole
    bom.components.update(components)
    bom.register_dependency(whole, components)
    content = json.loads(JsonV1Dot6(bom).output_as_string())
    content["metadata"].pop("timestamp")
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _component(ref: str, name: str, version: str, url: PackageURL, sha256: str | None) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []
    return Component(type=ComponentType.LIBRARY, name=name, version=version, purl=url, bom_ref=ref, hashes=hashes)


def listed(content: Any, kind: str) -> dict[str, str]:
    """Name to version of the components of one kind, "python" or "deb", in a bill."""
    ours: Iterable[dict[str, str]] = (c for c in content["components"] if c["bom-ref"].startswith(f"{kind}:"))
    return {component["name"]: component["version"] for component in ours}
