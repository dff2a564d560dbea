"""Attacks on a server: every call, with every token, about what another project has."""
