-- A process that opened the store before a migration must not work on beside newer ones: it does not know what those
-- write. Each says the schema that it knows, in the setting mulligan.schema of its connections; 0.1 says nothing. A
-- migration beside which older processes cannot work replaces schema_needed(). Not immutable: prepared statements would
-- keep the old number.
CREATE FUNCTION schema_needed() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 11::bigint';

CREATE FUNCTION knows_schema() RETURNS boolean LANGUAGE sql STABLE
    AS $$SELECT coalesce(nullif(current_setting('mulligan.schema', true), '')::bigint, 0) >= schema_needed()$$;

-- With the code of a function that is missing: for that, 0.1 ends with an error that has the message.
CREATE FUNCTION refuse_older() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'undefined_function', CONSTRAINT = 'schema_needed',
        MESSAGE = 'a newer Mulligan has migrated it; stop this process and start it with the newer version';
END
$$;

-- No task is leased, no timer fires and no heartbeat is written without the time,
CREATE OR REPLACE FUNCTION now_micros() RETURNS bigint LANGUAGE sql VOLATILE AS $$
SELECT CASE WHEN knows_schema() THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint ELSE refuse_older() END
$$;

-- and no turn is committed without this.
CREATE OR REPLACE FUNCTION expect(what text, counted bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT knows_schema() THEN
        PERFORM refuse_older();
    END IF;
    IF counted <> wanted THEN
        RAISE EXCEPTION USING MESSAGE = what;
    END IF;
END
$$;
