-- Keys under which runs were started: who asks again, since no answer came, is told which run that was.
CREATE TABLE starts (
    key    TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX starts_by_run ON starts (run_id);
