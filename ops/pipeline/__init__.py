"""`./eyas pipeline`: all stages in order, each skipped when what it was made from has not changed."""
