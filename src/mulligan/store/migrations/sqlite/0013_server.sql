-- Until when a sender has a notice. Before, that was its `due_at`: what waits for its time and what is being sent looked
-- the same.
ALTER TABLE notices ADD COLUMN claimed_until INTEGER NOT NULL DEFAULT 0;
DROP INDEX notices_waiting;
-- What waits for a target that is down costs those for the others nothing.
CREATE INDEX notices_waiting ON notices (target, due_at, id, claimed_until) WHERE status = 'waiting';

-- Targets of notices to which nothing is sent before `retry_at`. Their notices stay as they are.
CREATE TABLE notice_targets (
    target   TEXT PRIMARY KEY,
    -- How often in a row it was tried in vain; 0 if it has had its messages of this minute, or is not known.
    failures INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    retry_at INTEGER NOT NULL,
    reason   TEXT NOT NULL
) WITHOUT ROWID;
