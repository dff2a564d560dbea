-- The user or program that started the run. Filled in by `backfill`, as are the words.
ALTER TABLE runs ADD COLUMN started_by text COLLATE "C" NOT NULL DEFAULT '';

-- What runs are found by, as in SQLite. An entry of an index has at most 2,704 bytes, so names are cut.
CREATE INDEX runs_by_status ON runs (status, run_id) WHERE parent_run_id IS NULL;
CREATE INDEX runs_by_workflow ON runs (left(workflow, 200), run_id) WHERE parent_run_id IS NULL;
CREATE INDEX runs_by_starter ON runs (left(started_by, 200), run_id) WHERE parent_run_id IS NULL;
CREATE INDEX runs_by_creation ON runs (created_at);
CREATE INDEX attributes_by_value ON attributes (kind, name, value, run_id);

CREATE TABLE run_words (
    run_id  bigint PRIMARY KEY,
    started tsvector NOT NULL,
    inputs  tsvector NOT NULL,
    failed  tsvector NOT NULL DEFAULT '',
    words   tsvector GENERATED ALWAYS AS (started || inputs || failed) STORED
);
CREATE INDEX run_words_by_word ON run_words USING gin (words);

-- By how many microseconds the order of creation times and that of ids differ at most. At least an hour: of two
-- transactions at once, neither sees the run of the other.
CREATE TABLE skew (micros bigint NOT NULL);
INSERT INTO skew
SELECT greatest(coalesce(max(latest - created_at), 0), 3600000000)
FROM (SELECT created_at, max(created_at) OVER (ORDER BY run_id) AS latest FROM runs) ordered;
