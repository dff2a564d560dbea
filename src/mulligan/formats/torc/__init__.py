"""Torc's files: `records` has their keys, `workflow` puts the translated file together."""
