"""A server under load: starting it, asking it, watching it."""
