"""Models that are asked over HTTP, or replayed from a file: one module for each wire format."""
