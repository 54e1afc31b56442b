"""What a draft is worth: the target served with and without it, measured."""
