"""The target's own answers to prompts: data that a draft is trained on as it will be used."""
