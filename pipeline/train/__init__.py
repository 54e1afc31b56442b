"""The `train` stage: an EAGLE-3 draft out of a store of hidden states."""
