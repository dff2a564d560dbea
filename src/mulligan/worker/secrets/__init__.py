"""Look up secrets, give them to their tasks only, and redact them everywhere else."""
