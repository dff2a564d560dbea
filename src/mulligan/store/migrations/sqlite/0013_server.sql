-- A definition belongs to one project: in `workflows` its version is `@PROJECT/VERSION`, and VERSION alone in the first
-- project. What is there already stays, for the runs of all projects that were started with it. Older processes look for
-- a version alone, and would not find the others.
DROP TRIGGER turns_of_older_processes;
DROP TRIGGER leases_of_older_processes;
CREATE TRIGGER turns_of_older_processes BEFORE UPDATE OF degraded ON runs WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
CREATE TRIGGER leases_of_older_processes BEFORE UPDATE OF ticket ON tasks WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 13); start this again with the newer version"(); END;
