-- What runs are found by, as in SQLite.
CREATE TABLE attributes (
    run_id bigint NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    value  text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, kind, name)
);

-- One run at a time: a log that cannot be read, or an input that no text can hold, costs its own run alone.
DO $$
DECLARE
    started record;
BEGIN
    FOR started IN
        SELECT r.run_id, e.entry FROM runs r JOIN events e ON e.run_id = r.run_id AND e.seq = 1
        WHERE r.parent_run_id IS NULL
    LOOP
        BEGIN
            INSERT INTO attributes
            SELECT started.run_id, 'input', i.key, coalesce(i.value #>> '{}', 'null')
            FROM json_each(convert_from(started.entry, 'UTF8')::json #> '{fact,inputs}') i
            WHERE json_typeof(i.value) NOT IN ('array', 'object')
                  AND length(i.key) <= 200 AND length(coalesce(i.value #>> '{}', '')) <= 200;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
END
$$;

ALTER TABLE tasks ADD COLUMN leased_at bigint;
