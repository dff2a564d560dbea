-- Older processes know neither the request for another round of a child run, nor which steps a round starts fresh.
DROP TRIGGER turns_of_older_processes;
DROP TRIGGER leases_of_older_processes;
CREATE TRIGGER turns_of_older_processes BEFORE UPDATE OF degraded ON runs WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 12); start this again with the newer version"(); END;
CREATE TRIGGER leases_of_older_processes BEFORE UPDATE OF ticket ON tasks WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 12); start this again with the newer version"(); END;
