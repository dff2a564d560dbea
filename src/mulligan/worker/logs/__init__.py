"""What tasks write: limited, redacted, linked, shipped; what they say of their progress."""
