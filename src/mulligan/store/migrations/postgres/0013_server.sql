-- A definition belongs to one project: in `workflows` its version is `@PROJECT/VERSION`, and VERSION alone in the first
-- project. What is there already stays, for the runs of all projects that were started with it. Older processes look for
-- a version alone, and would not find the others.

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

-- Older processes know neither claims nor targets that are left alone. Nor must they start runs, fire schedules, publish
-- or send, as in SQLite. What a task reports is taken all the same.
CREATE OR REPLACE FUNCTION schema_needed() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 13::bigint';
CREATE FUNCTION refuse_older_writes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT knows_schema() THEN
        PERFORM refuse_older();
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER starts_of_older_processes BEFORE INSERT ON runs
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writes();
CREATE TRIGGER documents_of_older_processes BEFORE INSERT OR UPDATE OR DELETE ON documents
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writes();
CREATE TRIGGER versions_of_older_processes BEFORE INSERT ON workflow_versions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writes();
CREATE TRIGGER tokens_of_older_processes BEFORE INSERT OR UPDATE ON tokens
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writes();
CREATE TRIGGER audit_of_older_processes BEFORE INSERT ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writes();
CREATE TRIGGER notices_of_older_processes BEFORE UPDATE ON notices
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writes();
