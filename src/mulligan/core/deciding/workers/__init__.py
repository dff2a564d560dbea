"""Decisions about workers: where a task runs, who is dead, what a task needs, circuit breakers."""
