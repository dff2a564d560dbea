"""Workflows written in Python, and Python code in workflows."""
