"""Commands for workflow files: check, draw, convert, cover, try."""
