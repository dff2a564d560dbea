-- Moments are microseconds since 1970, in UTC. What has a structure of its own is JSON, as bytes.
-- The tables are those of SQLite; what is different is said here.

-- In place of a table of counters: numbers that are handed out without waiting for each other.
CREATE SEQUENCE run_ids;
CREATE SEQUENCE tickets;

-- The server's clock is the store's: hosts need not agree on the time.
CREATE FUNCTION now_micros() RETURNS bigint LANGUAGE sql VOLATILE
    AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

-- Ends a transaction that must not be written, without asking its writer: a batch takes one round trip.
CREATE FUNCTION expect(what text, counted bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF counted <> wanted THEN
        RAISE EXCEPTION USING MESSAGE = what;
    END IF;
END
$$;

CREATE TABLE workers (
    name    text COLLATE "C" PRIMARY KEY,
    host    text NOT NULL,
    record  bytea NOT NULL,
    beat_at bigint NOT NULL
);

CREATE TABLE workflows (
    version text COLLATE "C" PRIMARY KEY,
    body    bytea NOT NULL
);

CREATE TABLE runs (
    run_id         bigint PRIMARY KEY,
    workflow       text NOT NULL,
    version        text NOT NULL,
    status         text NOT NULL DEFAULT 'running',
    round          bigint NOT NULL DEFAULT 1,
    seq            bigint NOT NULL DEFAULT 0,
    created_at     bigint NOT NULL,
    updated_at     bigint NOT NULL,
    degraded       boolean NOT NULL DEFAULT false,
    reason         text NOT NULL DEFAULT '',
    parent_run_id  bigint,
    parent_place   text NOT NULL,
    parent_attempt bigint NOT NULL,
    root_run_id    bigint NOT NULL,
    holder         text COLLATE "C" NOT NULL,
    fence          bigint NOT NULL
-- Room in each page, so that a turn moves its run on without touching an index.
) WITH (fillfactor = 70);
CREATE INDEX runs_by_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_by_holder ON runs (holder) WHERE holder <> '';

CREATE TABLE events (
    run_id bigint NOT NULL,
    seq    bigint NOT NULL,
    entry  bytea NOT NULL,
    PRIMARY KEY (run_id, seq)
);

CREATE TABLE rows (
    run_id bigint NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    tag    text COLLATE "C" NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (run_id, kind, key)
) WITH (fillfactor = 80);
CREATE INDEX rows_by_tag ON rows (tag) WHERE tag <> '';

CREATE TABLE messages (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id    bigint NOT NULL,
    report    bytea NOT NULL,
    is_asking boolean NOT NULL DEFAULT false,
    place     text COLLATE "C" NOT NULL DEFAULT '',
    attempt   bigint NOT NULL DEFAULT 0
);
CREATE INDEX messages_by_run ON messages (run_id, place, attempt);

CREATE TABLE answers (
    message_id bigint PRIMARY KEY,
    answer     bytea NOT NULL
);

CREATE TABLE tasks (
    run_id        bigint NOT NULL,
    place         text COLLATE "C" NOT NULL,
    attempt       bigint NOT NULL,
    ticket        bigint NOT NULL,
    worker        text COLLATE "C" NOT NULL,
    is_stopping   boolean NOT NULL DEFAULT false,
    grace_seconds double precision,
    cpus          double precision NOT NULL,
    memory        bigint NOT NULL,
    gpus          bigint NOT NULL,
    labels        jsonb NOT NULL,
    host          text NOT NULL,
    task          bytea NOT NULL,
    PRIMARY KEY (run_id, place, attempt)
);
CREATE INDEX tasks_free ON tasks (ticket) WHERE worker = '';
CREATE INDEX tasks_leased ON tasks (ticket) WHERE worker <> '';
CREATE INDEX tasks_by_worker ON tasks (worker) WHERE worker <> '';

CREATE TABLE timers (
    run_id bigint NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    place  text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    due    bigint NOT NULL,
    PRIMARY KEY (run_id, kind, place, number)
);
CREATE INDEX timers_by_due ON timers (due);
