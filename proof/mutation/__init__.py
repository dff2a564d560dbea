"""Mutation testing of the core: change it in one small place, and run the tests. Thousands of times."""
