"""How an engine is started, where no real one is."""

from pathlib import Path

from pipeline.evaluate.engine import Serving

SERVING = Serving(
    model=Path("nowhere"),
    dtype="float32",
    tp_size=1,
    batch_size=1,
    num_speculative_tokens=3,
    max_new_tokens=4,
    max_model_len=32,
    trust_remote_code=False,
    accelerator="cpu",
)
