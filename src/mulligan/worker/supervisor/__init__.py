"""The process that starts and ends all tasks of a worker, and what it knows of processes."""
