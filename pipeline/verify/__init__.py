"""Whether a store is right: its checksums and counts, and its states against an independent computation."""
