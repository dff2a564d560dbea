"""Thousands of runs on PostgreSQL while servers, workers and the network fail; then everything is looked at."""
