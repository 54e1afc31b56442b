"""The extract stage: plan, engines, run."""
