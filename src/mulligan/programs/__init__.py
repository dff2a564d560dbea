"""Programs: Python functions that decide while they run, and whose calls of steps are durable."""
