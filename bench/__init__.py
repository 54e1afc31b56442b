"""Benchmarks: a table as output, ratios within one run."""
