-- Runs that have not ended, as in SQLite.
CREATE INDEX runs_unfinished ON runs (root_run_id) WHERE status NOT IN ('completed', 'failed', 'cancelled');
