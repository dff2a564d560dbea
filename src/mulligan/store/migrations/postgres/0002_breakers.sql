-- Circuit breakers, as in SQLite.
CREATE TABLE breakers (
    name     text COLLATE "C" PRIMARY KEY,
    status   text NOT NULL DEFAULT 'closed',
    failures bigint NOT NULL DEFAULT 0,
    retry_at bigint,
    probe    bigint
);

ALTER TABLE tasks ADD COLUMN breaker text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN when_open text NOT NULL DEFAULT '';
CREATE INDEX tasks_guarded ON tasks (ticket) WHERE breaker <> '';

-- Breakers whose probe is under way: its lease has not ended.
CREATE VIEW probing AS
SELECT b.name FROM breakers b JOIN tasks t ON t.ticket = b.probe
WHERE b.status = 'half_open' AND t.breaker <> '' AND t.worker <> '';
