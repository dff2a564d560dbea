-- The user or program that started the run. Filled in by `backfill`, as are the words.
ALTER TABLE runs ADD COLUMN started_by TEXT NOT NULL DEFAULT '';

-- What runs are found by, always the newest first. Runs that other runs called are found through those.
CREATE INDEX runs_by_status ON runs (status, run_id) WHERE parent_run_id IS NULL;
CREATE INDEX runs_by_workflow ON runs (workflow, run_id) WHERE parent_run_id IS NULL;
CREATE INDEX runs_by_starter ON runs (started_by, run_id) WHERE parent_run_id IS NULL;
CREATE INDEX runs_by_creation ON runs (created_at);
-- A third kind of attribute: 'failure', with the code as its name, also of runs that were called.
CREATE INDEX attributes_by_value ON attributes (kind, name, value, run_id);

-- Words by run: ours, in small letters, with one space between two. The tokenizer splits at the spaces alone.
-- Only for these lengths of a word's beginning are the runs with it in order, so that the newest are found first.
CREATE VIRTUAL TABLE run_words USING fts5 (
    started, inputs, failed, tokenize = 'ascii', prefix = '1 2 3 4', detail = none, columnsize = 0
);

-- The same for the newest runs. They are moved to the index many at a time: one at a time, the index would cost as much
-- as the rest of a run's creation.
CREATE TABLE new_words (
    run_id  INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    inputs  TEXT NOT NULL,
    failed  TEXT NOT NULL
);

-- Creation times are not in the order of ids where clocks differ: by so many microseconds at most.
INSERT INTO counters
SELECT 'skew', coalesce(max(latest - created_at), 0)
FROM (SELECT created_at, max(created_at) OVER (ORDER BY run_id) AS latest FROM runs);
