-- Circuit breakers belong to the store: by name, for all its runs and workers.
CREATE TABLE breakers (
    name     TEXT PRIMARY KEY,
    status   TEXT NOT NULL,
    failures INTEGER NOT NULL,
    retry_at INTEGER,
    -- The token of the lease that probes.
    probe    INTEGER
) WITHOUT ROWID;

-- The breaker that a task asks ('' for none), and whether it waits for it ('wait') or leaves the queue ('fail').
ALTER TABLE tasks ADD COLUMN breaker TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN when_open TEXT NOT NULL DEFAULT '';
CREATE INDEX tasks_guarded ON tasks (ticket) WHERE breaker <> '';

-- Breakers whose probe is under way: its lease has not ended.
CREATE VIEW probing AS
SELECT b.name FROM breakers b JOIN tasks t ON t.ticket = b.probe
WHERE b.status = 'half_open' AND t.breaker <> '' AND t.worker <> '';
