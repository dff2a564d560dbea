"""Artifacts as objects in S3, Google Cloud Storage and Azure. `obstore` is imported nowhere else."""
