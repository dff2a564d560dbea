"""Matrix steps: combinations, and what depends on their values."""
