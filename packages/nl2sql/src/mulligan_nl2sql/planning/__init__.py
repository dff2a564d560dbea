"""Planners: from a question to SQL."""
