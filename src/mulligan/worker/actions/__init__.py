"""One file per action: how it is started, and how its result is read."""
