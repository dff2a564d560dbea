"""One run in memory: its places, the table of allowed transitions, and what expressions may read of it."""
