"""Who asks, what they may do, and how often; what the audit says of it."""
