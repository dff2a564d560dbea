"""Jobs of schedulers and clusters, and what a worker in one knows of its end."""
