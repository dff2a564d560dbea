"""Run a worker in this process, and show the run that it drives or that another process drives."""
