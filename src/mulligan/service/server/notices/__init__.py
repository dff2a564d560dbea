"""Sending notices: targets, messages, the sender, and the verbs about the outbox and the rules of a project."""
