"""Slurm: jobs that run our workers, and what their ends mean."""
