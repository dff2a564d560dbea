"""Schedules: published workflows that are started on time."""
