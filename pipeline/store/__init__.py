"""The store: the only thing that outlives extraction. Its layout is in docs/architecture.md."""
