"""Commands that start, drive and change runs, and answer what waits for a person."""
