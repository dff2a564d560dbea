"""What happens to a run when a step fails in each way that can happen to it."""
