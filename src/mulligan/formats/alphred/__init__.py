"""Alphred's files: `keys` has their keys, `tree` reads them, `steps` builds the steps; `subtasks` runs in workers."""
