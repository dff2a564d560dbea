-- A name space of the store. Child runs are in the project of their root. '' is the first one.
ALTER TABLE runs ADD COLUMN project TEXT NOT NULL DEFAULT '';
-- Runs of one project are listed with the index by status, a list for each status: another index would cost each start.
DROP INDEX runs_by_status;
CREATE INDEX runs_by_status ON runs (project, status, run_id) WHERE parent_run_id IS NULL;

-- Published workflows. A version is never changed. The text comes last, so that lists do not read it.
CREATE TABLE workflow_versions (
    project      TEXT NOT NULL,
    name         TEXT NOT NULL,
    number       INTEGER NOT NULL,
    digest       TEXT NOT NULL,
    published_at INTEGER NOT NULL,
    published_by TEXT NOT NULL,
    format       TEXT NOT NULL,
    note         TEXT NOT NULL,
    labels       BLOB NOT NULL,
    text         BLOB NOT NULL,
    PRIMARY KEY (project, name, number)
);

-- Drafts, schedules, hooks: what people and servers change. The revision grows with each change.
CREATE TABLE documents (
    kind       TEXT NOT NULL,
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    data       BLOB NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    PRIMARY KEY (kind, project, name)
) WITHOUT ROWID;

-- Who may do what. The secret is not here: only its SHA-256.
CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    digest     TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    record     BLOB NOT NULL
);

-- Every change that somebody asked a server for.
CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    who      TEXT NOT NULL,
    action   TEXT NOT NULL,
    target   TEXT NOT NULL,
    status   INTEGER NOT NULL,
    project  TEXT NOT NULL,
    token_id TEXT NOT NULL,
    why      TEXT NOT NULL,
    source   TEXT NOT NULL
);
CREATE INDEX audit_by_project ON audit (project, id);
CREATE INDEX audit_by_token ON audit (token_id, at) WHERE token_id <> '';

-- The outbox: messages to people and programs.
CREATE TABLE notices (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT NOT NULL UNIQUE,
    target     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    run_id     INTEGER NOT NULL,
    project    TEXT NOT NULL,
    status     TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    -- 0: at once.
    due_at     INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    body       BLOB NOT NULL
);
CREATE INDEX notices_waiting ON notices (due_at, id) WHERE status = 'waiting';
CREATE INDEX notices_by_run ON notices (run_id) WHERE run_id <> 0;

-- Logs of attempts that other hosts have shipped, in pieces.
CREATE TABLE log_chunks (
    run_id  INTEGER NOT NULL,
    place   TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    stream  TEXT NOT NULL,
    start   INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    is_last INTEGER NOT NULL,
    data    BLOB NOT NULL,
    PRIMARY KEY (run_id, place, attempt, stream, start)
);
