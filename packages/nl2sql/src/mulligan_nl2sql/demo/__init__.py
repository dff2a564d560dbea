"""A small shop, for the demo and the tests."""
