"""Git for runs: worktrees of runs and items, and the lock on a repository."""
