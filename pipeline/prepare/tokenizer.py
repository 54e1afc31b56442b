"""Loading a target's tokenizer from its folder, never from the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.errors import InputError, SettingsError


def load_tokenizer(model: Path, trust_remote_code: bool) -> Any:
    """Load the tokenizer.

    Args:
        model: the target's folder.
        trust_remote_code: whether Python code from that folder may run.

    Returns:
        A transformers tokenizer.

    Raises:
        SettingsError: the folder's tokenizer is code, and running it was not asked for.
        InputError: the folder holds no tokenizer that can be loaded.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code, local_files_only=True)
    except Exception as error:
        if "trust_remote_code" in str(error) and not trust_remote_code:
            raise SettingsError(
                f"the tokenizer of {model} is Python code in that folder: read it, then give --trust-remote-code"
            ) from error
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"no usable tokenizer in {model}: {reason[0]}") from error
