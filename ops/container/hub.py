"""What a stage needs of the model hub: the cache, the network, and the token as a file that no inspection shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ops.container.mounts import Mount

CACHE = Path("/hf")
TOKEN = Path("/run/secrets/hf_token")


@dataclass(frozen=True)
class HubAccess:
    """What a container is given for the hub."""

    mounts: tuple[Mount, ...]
    environment: Mapping[str, str]
    network: str
    cache: Path
    """the Hugging Face cache of the host, to be made if it is missing"""


def hub_access(environment: Mapping[str, str], home: Path, secrets: Path) -> HubAccess:
    """Access for a target that is named and not on this disk.

    Args:
        environment: the user's variables; HF_HUB_OFFLINE=1 there keeps the network away, and the cache has to do.
        home: the user's home, for the hub's own default places.
        secrets: the folder that `write_token` fills.
    """
    cache = hub_cache(environment, home)
    mounts = [Mount(target=CACHE, source=cache, read_only=False)]
    if environment.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return HubAccess(tuple(mounts), {}, "none", cache)
    variables = {"HF_HUB_OFFLINE": "0"}
    token = token_file(environment, home, secrets)
    if token:
        mounts.append(Mount(target=TOKEN, source=token, read_only=True))
        variables["HF_TOKEN_PATH"] = str(TOKEN)
    return HubAccess(tuple(mounts), variables, "bridge", cache)


def hub_cache(environment: Mapping[str, str], home: Path) -> Path:
    """The folder that huggingface_hub itself would use on the host."""
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]).absolute()
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache").absolute() / "huggingface"


def token_file(environment: Mapping[str, str], home: Path, secrets: Path) -> Path | None:
    """The file with the user's token: `write_token`'s for one in a variable; None without a token."""
    if _of_variable(environment):
        return secrets / TOKEN.name
    stored = Path(environment.get("HF_TOKEN_PATH") or hub_cache(environment, home) / "token").absolute()
    return stored if stored.is_file() else None


def write_token(environment: Mapping[str, str], secrets: Path) -> None:
    """Put a token that is in a variable into a file that only this user can read, in a private folder."""
    if token := _of_variable(environment):
        secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = secrets / TOKEN.name
        place.touch(mode=0o600)
        place.write_text(token, encoding="utf-8")


def _of_variable(environment: Mapping[str, str]) -> str:
    # The second is the older name, which huggingface_hub still reads.
    return (environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN") or "").strip()
