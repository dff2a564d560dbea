"""Environments of python steps that have requirements: found, built, removed."""
