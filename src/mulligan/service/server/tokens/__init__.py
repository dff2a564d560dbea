"""Tokens of a server: making, listing, revoking and checking them; and the audit."""
