-- A name space of the store, as in SQLite.
ALTER TABLE runs ADD COLUMN project text COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX runs_by_status;
CREATE INDEX runs_by_status ON runs (project, status, run_id) WHERE parent_run_id IS NULL;

-- What a server keeps, as in SQLite. An entry of an index has at most 2,704 bytes: `core` limits the lengths of names.
CREATE TABLE workflow_versions (
    project      text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    number       bigint NOT NULL,
    digest       text NOT NULL,
    published_at bigint NOT NULL,
    published_by text NOT NULL,
    format       text NOT NULL,
    note         text NOT NULL,
    labels       bytea NOT NULL,
    text         bytea NOT NULL,
    PRIMARY KEY (project, name, number)
);

CREATE TABLE documents (
    kind       text COLLATE "C" NOT NULL,
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    data       bytea NOT NULL,
    updated_at bigint NOT NULL,
    updated_by text NOT NULL,
    revision   bigint NOT NULL,
    PRIMARY KEY (kind, project, name)
);

CREATE TABLE tokens (
    id         text COLLATE "C" PRIMARY KEY,
    digest     text COLLATE "C" NOT NULL UNIQUE,
    created_at bigint NOT NULL,
    revoked_at bigint,
    record     bytea NOT NULL
);

CREATE TABLE audit (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    who      text NOT NULL,
    action   text NOT NULL,
    target   text NOT NULL,
    status   bigint NOT NULL,
    project  text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    why      text NOT NULL,
    source   text NOT NULL
);
CREATE INDEX audit_by_project ON audit (project, id);
CREATE INDEX audit_by_token ON audit (token_id, at) WHERE token_id <> '';

CREATE TABLE notices (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key        text COLLATE "C" NOT NULL UNIQUE,
    target     text NOT NULL,
    created_at bigint NOT NULL,
    run_id     bigint NOT NULL,
    project    text NOT NULL,
    status     text NOT NULL,
    attempts   bigint NOT NULL,
    due_at     bigint NOT NULL,
    reason     text NOT NULL,
    body       bytea NOT NULL
);
CREATE INDEX notices_waiting ON notices (due_at, id) WHERE status = 'waiting';
CREATE INDEX notices_by_run ON notices (run_id) WHERE run_id <> 0;

CREATE TABLE log_chunks (
    run_id  bigint NOT NULL,
    place   text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    stream  text COLLATE "C" NOT NULL,
    start   bigint NOT NULL,
    size    bigint NOT NULL,
    is_last boolean NOT NULL,
    data    bytea NOT NULL,
    PRIMARY KEY (run_id, place, attempt, stream, start)
);
