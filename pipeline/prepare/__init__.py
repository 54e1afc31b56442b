"""Conversations to tokenized samples with loss masks."""
