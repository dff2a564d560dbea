-- Keys under which runs were started, as in SQLite.
CREATE TABLE starts (
    key    text COLLATE "C" PRIMARY KEY,
    run_id bigint NOT NULL
);
CREATE INDEX starts_by_run ON starts (run_id);
