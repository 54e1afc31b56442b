"""Images: how one is built, what it says of itself, and how that is checked."""
