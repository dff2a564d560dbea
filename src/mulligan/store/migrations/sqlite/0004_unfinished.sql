-- Runs that have not ended are few beside those that have: found without a look at the others, also below one root.
CREATE INDEX runs_unfinished ON runs (root_run_id) WHERE status NOT IN ('completed', 'failed', 'cancelled');
