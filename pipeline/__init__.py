"""What happens to the data: the stages, run in a stack's environment."""
