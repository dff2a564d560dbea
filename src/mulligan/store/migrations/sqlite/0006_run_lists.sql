-- What runs are found by besides workflow, status and time: labels, and short inputs. Only of runs that no run called.
CREATE TABLE attributes (
    run_id INTEGER NOT NULL,
    -- 'input' or 'label'
    kind   TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (run_id, kind, name)
) WITHOUT ROWID;

-- Inputs of the runs that are there already, from the first event of each. A log that cannot be read gives none,
-- and of an input that stands there twice, one.
INSERT OR IGNORE INTO attributes
SELECT r.run_id, 'input', i.key, iif(i.type IN ('true', 'false', 'null'), i.type, CAST(i.value AS TEXT))
FROM runs r CROSS JOIN events e ON e.id = (r.run_id << 32) + 1
CROSS JOIN json_each(iif(json_valid(CAST(e.entry AS TEXT)), CAST(e.entry AS TEXT), '{}'), '$.fact.inputs') i
WHERE r.parent_run_id IS NULL AND i.type NOT IN ('array', 'object')
      AND length(i.key) <= 200 AND length(CAST(coalesce(i.value, '') AS TEXT)) <= 200;

-- Since when a worker has the task.
ALTER TABLE tasks ADD COLUMN leased_at INTEGER;
