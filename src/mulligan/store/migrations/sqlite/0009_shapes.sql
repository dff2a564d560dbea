-- On how many nodes a task runs, and its timeout in seconds: so that the queue can be counted by what its tasks ask for.
ALTER TABLE tasks ADD COLUMN nodes INTEGER NOT NULL DEFAULT 1;
ALTER TABLE tasks ADD COLUMN timeout REAL;
UPDATE tasks SET timeout = json_extract(CAST(task AS TEXT), '$.timeout');
