"""One file per action: what it needs to start, and how its end is read."""
