"""Decides recorded runs again with another definition: what would have happened, and how much of that is known."""
