"""What waits for a person or an agent, and what they decide."""
