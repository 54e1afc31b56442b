"""What a draft is worth, told from a held-out store without serving it."""
