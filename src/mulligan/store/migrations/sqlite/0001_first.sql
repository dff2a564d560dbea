-- Moments are microseconds since 1970, in UTC. What has a structure of its own is JSON.

-- Counters that never go back, whatever is deleted: ids of runs, and tickets.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters VALUES ('run', 0), ('ticket', 0);

CREATE TABLE workers (
    name   TEXT PRIMARY KEY,
    host   TEXT NOT NULL,
    -- The rest of what it said of itself.
    record BLOB NOT NULL,
    beat_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Pinned definitions, once for all runs of a version.
CREATE TABLE workflows (
    version TEXT PRIMARY KEY,
    body    BLOB NOT NULL
);

CREATE TABLE runs (
    run_id         INTEGER PRIMARY KEY,
    workflow       TEXT NOT NULL,
    version        TEXT NOT NULL,
    status         TEXT NOT NULL,
    round          INTEGER NOT NULL,
    seq            INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    degraded       INTEGER NOT NULL,
    reason         TEXT NOT NULL,
    parent_run_id  INTEGER,
    parent_place   TEXT NOT NULL,
    parent_attempt INTEGER NOT NULL,
    root_run_id    INTEGER NOT NULL,
    -- Who has the turn ('' if nobody), and the number that grows with each holder.
    holder         TEXT NOT NULL,
    fence          INTEGER NOT NULL,
    -- The run's own row of its state: with each turn it changes, as this line does.
    state          BLOB
);
CREATE INDEX runs_by_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_by_holder ON runs (holder) WHERE holder <> '';

-- The logs. Only a table with a whole number for its key is cheap to append to: `id` is run_id * 2^32 + seq.
CREATE TABLE events (
    id    INTEGER PRIMARY KEY,
    entry BLOB NOT NULL
);

-- The tables of each run's state: the snapshot and the read model.
CREATE TABLE rows (
    run_id INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    key    TEXT NOT NULL,
    tag    TEXT NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (run_id, kind, key)
) WITHOUT ROWID;
CREATE INDEX rows_by_tag ON rows (tag) WHERE tag <> '';

CREATE TABLE messages (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id    INTEGER NOT NULL,
    report    BLOB NOT NULL,
    is_asking INTEGER NOT NULL,
    -- The task that a lease's message is about: while it waits here, the run does not know what became of the task.
    place     TEXT NOT NULL,
    attempt   INTEGER NOT NULL
);
CREATE INDEX messages_by_run ON messages (run_id, place, attempt);

CREATE TABLE answers (
    message_id INTEGER PRIMARY KEY,
    answer     BLOB NOT NULL
);

-- Tasks that are queued (worker '': the ticket is the age) or leased (the ticket is the lease's token).
CREATE TABLE tasks (
    run_id        INTEGER NOT NULL,
    place         TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    ticket        INTEGER NOT NULL,
    worker        TEXT NOT NULL,
    is_stopping   INTEGER NOT NULL,
    grace_seconds REAL,
    cpus          REAL NOT NULL,
    memory        INTEGER NOT NULL,
    gpus          INTEGER NOT NULL,
    labels        TEXT NOT NULL,
    host          TEXT NOT NULL,
    task          BLOB NOT NULL,
    PRIMARY KEY (run_id, place, attempt)
) WITHOUT ROWID;
CREATE INDEX tasks_free ON tasks (ticket) WHERE worker = '';
CREATE INDEX tasks_stopping ON tasks (worker) WHERE is_stopping;

CREATE TABLE timers (
    run_id INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    place  TEXT NOT NULL,
    number INTEGER NOT NULL,
    due    INTEGER NOT NULL,
    PRIMARY KEY (run_id, kind, place, number)
) WITHOUT ROWID;
CREATE INDEX timers_by_due ON timers (due);
