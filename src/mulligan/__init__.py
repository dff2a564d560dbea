"""Mulligan: durable workflows in which failure is a first-class path."""

__version__ = "0.1.0"
