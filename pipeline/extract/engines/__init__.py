"""The engines that compute states: *speculators* (vLLM) for the work, *reference* (transformers) to check it."""
