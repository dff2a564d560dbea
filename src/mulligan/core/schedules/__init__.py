"""Pure: what a schedule does next, from what it says, what it did, the time, and how its runs ended."""
