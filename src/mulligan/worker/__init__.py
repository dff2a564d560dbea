"""Run tasks: start processes, watch them, end them, read their results. Nothing here decides what a failure means."""
