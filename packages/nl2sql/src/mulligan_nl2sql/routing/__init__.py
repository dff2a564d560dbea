"""A question and several databases: which are asked what, how their results go together, and what comes of it."""
