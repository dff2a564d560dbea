"""Runs: read from the store, shown, counted together, changed."""
