"""The docker runtime: a stage in a container of its stack's image, from preflight to removal."""
