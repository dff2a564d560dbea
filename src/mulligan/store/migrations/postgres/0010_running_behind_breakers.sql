-- How many tasks may run at once behind a closed breaker, as in SQLite.
ALTER TABLE breakers ADD COLUMN max_running bigint;
CREATE INDEX tasks_behind_breakers ON tasks (breaker) WHERE breaker <> '' AND worker <> '';

-- How many tasks run behind the breakers.
CREATE VIEW running_behind AS
SELECT breaker AS name, count(*) AS tasks FROM tasks WHERE breaker <> '' AND worker <> '' GROUP BY breaker;

-- Breakers that admit nobody now, whatever a task does while they are open: one is probed, another lets no more run.
CREATE VIEW admitting_nobody AS
SELECT name FROM probing
UNION ALL
SELECT b.name FROM breakers b JOIN running_behind behind USING (name)
WHERE b.status = 'closed' AND behind.tasks >= b.max_running;
