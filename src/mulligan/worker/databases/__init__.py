"""The databases of `sql` steps, one file each, and what they share. Runs in a warm child."""
