"""A stack: one environment, pinned to the byte. `stacks/<name>/` holds stack.toml and a lock for each accelerator."""
