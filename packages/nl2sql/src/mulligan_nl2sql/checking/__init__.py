"""Decides, without I/O, whether a statement may be executed, and writes what is executed instead of its text."""
