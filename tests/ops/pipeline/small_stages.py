"""Stages of a few lines: each writes what its contract names, made of what it reads, of its flags and of nothing else.

Run as a program: STAGE [flags]. The run's diary, named in DIARY, gets a line a call. A stage named in FAIL ends with 47
half-way, one named in HANG stays half-way until it is killed; half-way, `half` stands in its folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

PLACES = {"--input", "--prepared-data", "--store", "--draft", "--estimate", "--train-report", "--evaluation"}


def main(argv: list[str]) -> int:
    stage, *flags = argv
    pairs = [flag.partition("=")[::2] for flag in flags]
    folder = Path(dict(pairs)["--output-dir"])
    went_on = (folder / "half").exists()
    with Path(os.environ["DIARY"]).open("a", encoding="utf-8") as diary:
        diary.write(f"{stage} {folder.name}{' went on' if went_on else ''}\n")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "half").touch()
    if os.environ.get("FAIL") == folder.name:
        return 47
    while os.environ.get("HANG") == folder.name:
        time.sleep(0.05)
    (folder / "half").unlink()
    write(stage, folder, content(pairs))
    return 0


def content(pairs: list[tuple[str, str]]) -> str:
    """A digest of the settings and of the bytes of all that is read."""
    digest = hashlib.sha256()
    for name, value in pairs:
        if name in PLACES:
            digest.update(name.encode() + everything(Path(value.rpartition("=")[2])))
        elif name not in {"--output-dir", "--model-path"}:
            digest.update(f"{name}={value}".encode())
    return digest.hexdigest()


def everything(path: Path) -> bytes:
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return b"".join(file.read_bytes() for file in files)


def write(stage: str, folder: Path, made: str) -> None:
    if stage == "extract":
        (folder / "shards").mkdir(exist_ok=True)
        (folder / "shards" / "000000.safetensors").write_text(made)
        manifest = {"status": "complete", "counts": {"shard_bytes": len(made)}, "store_digest": made}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return
    if stage == "train":
        for step, name in (("step-00000000", "untrained"), ("step-00000009", "best")):
            (folder / "checkpoints" / step).mkdir(parents=True, exist_ok=True)
            (folder / "checkpoints" / step / "model.safetensors").write_text(step + made)
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(f"checkpoints/{step}")
    drafts = os.environ.get("DRAFTS") or json.dumps(
        {name: {"drafts": 9, "accepted_per_position": [4, 2, 1]} for name in ("speculators", "eagle3")}
    )
    files = {
        "regenerate": ("conversations.jsonl", "conversations.header.json"),
        "prepare": ("tokenized.jsonl", "tokenized.header.json"),
        "train": ("report.json",),
        "estimate": ("estimate.json",),
        "evaluate": ("answers.jsonl",),
        "export": ("speculators/model.safetensors", "eagle3/model.safetensors"),
    }
    for name in files[stage]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{name} {made}")
    if stage == "evaluate":
        (folder / "evaluation.json").write_text(json.dumps({"made": made, "drafts": json.loads(drafts)}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
