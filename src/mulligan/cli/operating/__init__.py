"""Commands for stores, servers, workers and clusters."""
