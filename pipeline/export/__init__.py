"""A trained draft, in the forms in which it is served."""
