"""What was read of databases, kept for later questions."""
