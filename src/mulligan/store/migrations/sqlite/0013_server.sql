-- A definition belongs to one project: in `workflows` its version is `@PROJECT/VERSION`, and VERSION alone in the first
-- project. What is there already stays, for the runs of all projects that were started with it. Older processes look for
-- a version alone, and would not find the others.

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

-- Older processes know neither claims nor targets that are left alone. Nor must they start runs, fire schedules, publish
-- or send: as for turns and leases, who writes these must have the function. What a task reports is taken all the same.
DROP TRIGGER turns_of_older_processes;
DROP TRIGGER leases_of_older_processes;
CREATE TRIGGER turns_of_older_processes BEFORE UPDATE OF degraded ON runs WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER leases_of_older_processes BEFORE UPDATE OF ticket ON tasks WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER starts_of_older_processes BEFORE INSERT ON runs WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER new_documents_of_older_processes BEFORE INSERT ON documents WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER changed_documents_of_older_processes BEFORE UPDATE ON documents WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER versions_of_older_processes BEFORE INSERT ON workflow_versions WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER tokens_of_older_processes BEFORE INSERT ON tokens WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER audit_of_older_processes BEFORE INSERT ON audit WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER notices_of_older_processes BEFORE UPDATE ON notices WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
-- And who asks whether it may work on, as a server does before each answer.
CREATE VIEW schema_needed AS SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"() AS checked;
