-- Until when a sender has a notice, and targets to which nothing is sent before `retry_at`, as in SQLite.
ALTER TABLE notices ADD COLUMN claimed_until bigint NOT NULL DEFAULT 0;
DROP INDEX notices_waiting;
CREATE INDEX notices_waiting ON notices (target, due_at, id, claimed_until) WHERE status = 'waiting';

CREATE TABLE notice_targets (
    target   text PRIMARY KEY,
    failures bigint NOT NULL,
    since    bigint NOT NULL,
    retry_at bigint NOT NULL,
    reason   text NOT NULL
);
