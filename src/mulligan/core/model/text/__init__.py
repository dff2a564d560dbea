"""Text and numbers: parsing durations, sizes and paths; formatting for people; finding credentials."""
