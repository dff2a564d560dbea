"""Runs as the store has them: records, states, events, outputs, artifacts; what is damaged."""
