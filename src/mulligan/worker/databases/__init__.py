"""The databases that a `sql` step can speak to, one file each, and what they have in common. Runs in a warm child."""
