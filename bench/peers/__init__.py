"""What Mulligan is measured beside: the peers' environments, the workloads, the race and the tables."""
