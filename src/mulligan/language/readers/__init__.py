"""Reads a file by noun: steps, edges, commands, retry, maps, inputs, triage, schedules."""
