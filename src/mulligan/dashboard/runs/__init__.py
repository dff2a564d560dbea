"""Pages of runs and of their steps."""
