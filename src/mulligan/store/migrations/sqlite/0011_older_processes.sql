-- A process that opened the file before a migration must not work on beside newer ones: it does not know what those
-- write. These triggers never do anything, but who commits a turn or leases a task must have their function; for others
-- its name is the error. A migration beside which older processes cannot work gives it another name: `statements`.
CREATE TRIGGER turns_of_older_processes BEFORE UPDATE OF degraded ON runs WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 11); start this again with the newer version"(); END;
CREATE TRIGGER leases_of_older_processes BEFORE UPDATE OF ticket ON tasks WHEN 0
BEGIN SELECT "a newer Mulligan has migrated it (schema 11); start this again with the newer version"(); END;
