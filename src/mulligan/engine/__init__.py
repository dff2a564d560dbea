"""The shell around the core: drains inboxes, takes turns, commits them together, hands tasks out."""
