-- On how many nodes a task runs, and its timeout in seconds, as in SQLite.
ALTER TABLE tasks ADD COLUMN nodes bigint NOT NULL DEFAULT 1;
ALTER TABLE tasks ADD COLUMN timeout double precision;
-- Without what is escaped: PostgreSQL reads no JSON with a \u0000 in it.
UPDATE tasks SET timeout = (
    regexp_replace(convert_from(task, 'UTF8'), '\\(u[0-9a-fA-F]{4}|.)', '', 'g')::json ->> 'timeout'
)::double precision;
