"""Warm children: the processes that run python steps, and the functions that are called in them."""
