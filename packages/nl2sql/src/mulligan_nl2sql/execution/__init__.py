"""Queries in processes of their own, with limits."""
