"""Planners beside the rules: a model over HTTP, and answers from files."""
