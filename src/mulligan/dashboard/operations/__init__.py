"""Pages of a store and its server: notices, schedules, tokens, workers, usage."""
