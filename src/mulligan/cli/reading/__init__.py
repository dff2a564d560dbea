"""Commands that show runs, what happened in them and what they cost."""
