"""Runs tasks on the workers of a Dask cluster. `distributed` is imported nowhere else."""
