"""A store's samples in the forms that others read, written to a folder or one after the other with no copy on the disk.

| form | files |
|---|---|
| `speculators-0.3.0` | `data_{i}.pt` |
| `speculators-0.9.0` | an Arrow data set, and `hidden_states/hs_{i}.safetensors` |

i is the sample's number in `HiddenStateDataset`.
"""

from __future__ import annotations

from pipeline.store.export.forms import Form, stream
from pipeline.store.export.write import export

__all__ = ["Form", "export", "stream"]
