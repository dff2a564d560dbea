"""Checks that need more than one step, or the whole text."""
