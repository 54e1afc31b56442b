"""Stores made of stores (merge, split, prune): shard files are linked, and only units that are cut are written anew."""
