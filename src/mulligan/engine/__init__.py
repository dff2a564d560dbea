"""The loop around the core: reads inboxes, takes turns, commits them together, starts tasks."""
