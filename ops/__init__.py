"""The host side: which environment a stage runs in, and how it is started. Imports nothing of `pipeline`."""
