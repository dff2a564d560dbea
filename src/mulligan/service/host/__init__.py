"""This host: checks, cleaning, a PostgreSQL of its own, circuit breakers, workers as Slurm jobs."""
