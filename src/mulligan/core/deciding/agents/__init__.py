"""Decisions about agents: conversations, budgets, triage."""
