"""Plays runs in memory: the core decides, and somebody says how each task ends."""
