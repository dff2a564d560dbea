"""Try a workflow file without a run: validation, one step, coverage, what-if, suggestions."""
