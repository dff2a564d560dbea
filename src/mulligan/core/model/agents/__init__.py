"""What agents say, may decide and spend."""
