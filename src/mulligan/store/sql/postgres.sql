-- Every statement of the PostgreSQL store, by name. Those of a commit take the rows of all turns as arrays.

-- opening ------------------------------------------------------------------------------------------------------------

-- Reads the catalogue: `to_regclass` would answer from a snapshot that is older than a lock we have waited for.
-- name: schema
SELECT current_schema(), EXISTS (
    SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
    WHERE nspname = current_schema() AND relname = 'schema_version'
)

-- name: lock_schema
SELECT pg_advisory_xact_lock(hashtextextended('mulligan ' || current_schema(), 0))

-- name: create_schema_version
CREATE TABLE IF NOT EXISTS schema_version (version bigint NOT NULL)

-- name: schema_version
SELECT version FROM schema_version

-- name: delete_schema_version
DELETE FROM schema_version

-- name: insert_schema_version
INSERT INTO schema_version VALUES (%s)

-- transactions -------------------------------------------------------------------------------------------------------

-- name: begin
BEGIN

-- name: begin_reading
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: commit
COMMIT

-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || %s::text, 0))

-- workers ------------------------------------------------------------------------------------------------------------

-- runs ---------------------------------------------------------------------------------------------------------------

-- name: new_run_ids
SELECT nextval('run_ids') FROM generate_series(1, %s::bigint)

-- name: highest_run_id
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM run_ids

-- name: expect_worker
WITH known AS (SELECT 1 FROM workers WHERE name = %s FOR KEY SHARE)
SELECT expect('worker', (SELECT count(*) FROM known), 1)

-- A definition belongs to one project: nobody stores what another project runs. A child run is in that of its parent.
-- name: insert_workflows
INSERT INTO workflows (version, body)
SELECT DISTINCT ON (1) CASE WHEN coalesce(p.project, n.project) = '' THEN n.version
                            ELSE '@' || coalesce(p.project, n.project) || '/' || n.version END, n.body
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bytea[]) AS n (version, project, parent, body)
LEFT JOIN runs p ON p.run_id = n.parent
ORDER BY 1
ON CONFLICT DO NOTHING

-- Waits for another transaction that uses the same key.
-- name: insert_starts
WITH added AS (
    INSERT INTO starts (key, run_id) SELECT * FROM unnest(%s::text[], %s::bigint[]) ORDER BY 1
    ON CONFLICT DO NOTHING RETURNING 1
)
SELECT expect('key', (SELECT count(*) FROM added), %s::bigint)

-- name: started
SELECT key, run_id FROM starts WHERE key = ANY (%s::text[]) ORDER BY key

-- name: keys_ending_with
SELECT key, run_id FROM starts WHERE right(key, length(%(ending)s)) = %(ending)s ORDER BY run_id

-- name: check_schema
SELECT CASE WHEN NOT knows_schema() THEN refuse_older() END

-- name: insert_runs
INSERT INTO runs (run_id, workflow, version, created_at, updated_at,
                  parent_run_id, parent_place, parent_attempt, root_run_id, holder, fence, started_by,
                  project)
SELECT n.run_id, n.workflow, n.version, n.at, n.at,
       n.parent, n.place, n.attempt, coalesce(p.root_run_id, n.run_id), n.holder, (n.holder <> '')::int, n.starter,
       coalesce(p.project, n.project)
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::text[],
            %s::text[], %s::text[])
     AS n (run_id, workflow, version, at, parent, place, attempt, holder, starter, project)
LEFT JOIN runs p ON p.run_id = n.parent

-- Words as one text each, with a space between two: an array of arrays would have to be of one length.
-- name: insert_words
INSERT INTO run_words (run_id, started, inputs)
SELECT n.run_id, array_to_tsvector(string_to_array(n.started, ' ')), array_to_tsvector(string_to_array(n.inputs, ' '))
FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n (run_id, started, inputs)

-- name: set_input_words
UPDATE run_words t SET inputs = array_to_tsvector(string_to_array(n.words, ' '))
FROM unnest(%s::bigint[], %s::text[]) AS n (run_id, words) WHERE t.run_id = n.run_id

-- name: set_failure_words
UPDATE run_words t SET failed = array_to_tsvector(string_to_array(n.words, ' '))
FROM unnest(%s::bigint[], %s::text[]) AS n (run_id, words) WHERE t.run_id = n.run_id

-- How far the order of creation times and that of ids differ at most: `at` is the earliest time of new runs, `among` how
-- far they differ among themselves. Nearly always nothing changes.
-- name: widen_skew
UPDATE skew SET micros = greatest(%(among)s::bigint, (SELECT max(created_at) FROM runs) - %(at)s::bigint)
WHERE micros < greatest(%(among)s::bigint, (SELECT max(created_at) FROM runs) - %(at)s::bigint)

-- Those of the runs' own projects. One that an older version stored is there for all projects.
-- name: workflows
SELECT version, body FROM workflows WHERE version IN (
    SELECT unnest(ARRAY[version, '@' || project || '/' || version]) FROM runs WHERE run_id = ANY (%s::bigint[])
)

-- name: rows
SELECT run_id, kind, key, tag, data FROM rows WHERE run_id = ANY (%s::bigint[]) ORDER BY run_id, kind, key

-- name: log
SELECT entry FROM events WHERE run_id = %s AND seq > %s::bigint ORDER BY seq LIMIT %s::bigint

-- Of any logs, each named by one number: that of the run, and its own in the lower 32 bits.
-- name: entries
SELECT wanted.id, e.entry FROM unnest(%s::bigint[]) AS wanted (id)
JOIN events e ON e.run_id = wanted.id >> 32 AND e.seq = wanted.id & 4294967295

-- name: search_log
SELECT entry FROM events
WHERE run_id = %s AND seq > %s::bigint
  AND (position(%s::bytea IN entry) > 0 OR position(%s::bytea IN entry) > 0) AND position(%s::bytea IN entry) > 0
ORDER BY seq

-- Run by run, using the key of the rows: an index by kind would cost every commit a write.
-- name: tallies
SELECT r.run_id, r.workflow, r.version, s.key, s.data
FROM runs r CROSS JOIN LATERAL (
    SELECT key, data FROM rows WHERE run_id = r.run_id AND kind = 'tallies' ORDER BY key
) s
WHERE (%(workflow)s::text IS NULL OR r.workflow = %(workflow)s::text)
  AND (%(since)s::bigint IS NULL OR r.created_at >= %(since)s::bigint)
  AND (%(project)s::text IS NULL OR r.project = %(project)s::text)
ORDER BY r.run_id DESC, s.key

-- name: records_containing
SELECT run_id, entry FROM events WHERE position(%(text)s::bytea IN entry) > 0
UNION ALL SELECT run_id, report FROM messages WHERE position(%(text)s::bytea IN report) > 0
UNION ALL SELECT run_id, task FROM tasks WHERE position(%(text)s::bytea IN task) > 0

-- name: lock_trees
SELECT run_id FROM runs WHERE run_id IN (
    WITH RECURSIVE trees (run_id) AS (
        SELECT run_id FROM runs WHERE run_id = ANY(%s::bigint[]) AND run_id = root_run_id
        UNION SELECT r.run_id FROM trees t JOIN runs r ON r.parent_run_id = t.run_id
    )
    SELECT run_id FROM trees
)
ORDER BY run_id FOR UPDATE

-- name: remove_events
DELETE FROM events WHERE run_id = ANY(%s::bigint[])

-- name: remove_inputs
DELETE FROM attributes WHERE run_id = ANY (%s::bigint[]) AND kind = 'input'

-- name: remove_failures
DELETE FROM attributes WHERE run_id = ANY (%s::bigint[]) AND kind = 'failure'

-- name: remove_words
DELETE FROM run_words WHERE run_id = ANY (%s::bigint[])

-- Creating a run writes its workflow first: this waits for such transactions, and then sees their runs.
-- name: lock_workflows
LOCK TABLE workflows IN SHARE ROW EXCLUSIVE MODE

-- name: remove_workflows
DELETE FROM workflows w USING unnest(%s::text[], %s::text[]) AS gone (version, project)
WHERE w.version IN (gone.version, '@' || gone.project || '/' || gone.version) AND (
    SELECT r.version FROM runs r
    WHERE r.version = gone.version AND (r.project = gone.project OR w.version = gone.version) LIMIT 1
) IS NULL

-- artifacts ----------------------------------------------------------------------------------------------------------

-- name: keep_artifact
INSERT INTO artifacts VALUES (%s, %s, %s, now_micros()) ON CONFLICT DO NOTHING RETURNING 1

-- name: artifact
SELECT data FROM artifacts WHERE name = %s

-- name: artifacts
SELECT name, size, kept_at FROM artifacts ORDER BY name

-- name: remove_artifacts
DELETE FROM artifacts WHERE name = ANY(%s::text[])

-- inboxes ------------------------------------------------------------------------------------------------------------

-- name: put
INSERT INTO messages (run_id, report, is_asking) SELECT run_id, %s, %s FROM runs WHERE run_id = %s
RETURNING id

-- name: insert_messages
INSERT INTO messages (run_id, report, place, attempt)
SELECT t.run_id, t.report, t.place, t.attempt
FROM unnest(%s::bigint[], %s::bytea[], %s::text[], %s::bigint[])
     WITH ORDINALITY AS t (run_id, report, place, attempt, number)
WHERE EXISTS (SELECT 1 FROM runs WHERE runs.run_id = t.run_id)
ORDER BY t.number

-- name: insert_child_messages
WITH inserted AS (
    INSERT INTO messages (run_id, report)
    SELECT run_id, %(report)s FROM runs
    WHERE parent_run_id = %(parent)s AND status NOT IN ('completed', 'failed', 'cancelled')
          AND (%(place)s = '' OR (parent_place = %(place)s AND parent_attempt = %(attempt)s::bigint))
    RETURNING run_id
)
SELECT pg_notify(%(channel)s, run_id::text) FROM inserted

-- Notifications are transactions of their own: `PostgresClient.notify`. They need not wait for the disk.
-- name: notify
SELECT pg_notify(%s, payload), set_config('synchronous_commit', 'off', true) FROM unnest(%s::text[]) AS payload

-- Each worker listens to a channel of its own too: what only the holder of a run can answer wakes no other worker.
-- name: notify_holders
SELECT pg_notify(
    CASE WHEN holder = '' THEN %s::text ELSE %s::text || left(encode(sha256(convert_to(holder, 'UTF8')), 'hex'), 32) END, run_id::text
), set_config('synchronous_commit', 'off', true)
FROM runs, (SELECT %s::bigint[] AS run_ids, %s::text AS sender) AS given
WHERE run_id = ANY (run_ids) AND (sender = '' OR holder <> sender)

-- turns --------------------------------------------------------------------------------------------------------------

-- name: take_turns
WITH known AS (SELECT name FROM workers WHERE name = %s FOR KEY SHARE),
free AS (
    SELECT run_id FROM runs, known WHERE run_id = ANY (%s::bigint[]) AND holder IN ('', name)
    ORDER BY run_id FOR UPDATE OF runs
)
UPDATE runs SET fence = fence + (holder = '')::int, holder = name
FROM known, free WHERE runs.run_id = free.run_id
RETURNING runs.run_id, fence

-- name: release
UPDATE runs SET holder = '' FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS t (run_id, fence, holder)
WHERE runs.run_id = t.run_id AND runs.fence = t.fence AND runs.holder = t.holder

-- name: advance_runs
WITH moved AS (
    UPDATE runs
    SET seq = t.seq, status = t.status, round = t.round, updated_at = t.at, degraded = t.degraded <> 0,
        reason = t.reason, holder = CASE WHEN t.is_last <> 0 THEN '' ELSE runs.holder END
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[],
                %s::bigint[], %s::bigint[], %s::text[], %s::bigint[])
         AS t (run_id, fence, holder, after, seq, status, round, at, degraded, reason, is_last)
    WHERE runs.run_id = t.run_id AND runs.fence = t.fence AND runs.holder = t.holder AND runs.seq = t.after
    RETURNING 1
)
SELECT expect('turn', (SELECT count(*) FROM moved), %s::bigint)

-- name: insert_events
INSERT INTO events SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])

-- name: put_rows
INSERT INTO rows SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::bytea[])
ON CONFLICT (run_id, kind, key) DO UPDATE SET tag = excluded.tag, data = excluded.data

-- name: delete_rows
DELETE FROM rows USING unnest(%s::bigint[], %s::text[], %s::text[]) AS t (run_id, kind, key)
WHERE rows.run_id = t.run_id AND rows.kind = t.kind AND rows.key = t.key

-- name: drain
DELETE FROM messages WHERE id = ANY (%s::bigint[])

-- name: insert_answers
INSERT INTO answers SELECT * FROM unnest(%s::bigint[], %s::bytea[]) ON CONFLICT DO NOTHING

-- Does not wait for another commit that does the same.
-- name: forget_answers
DELETE FROM answers WHERE message_id IN (
    SELECT message_id FROM answers WHERE message_id < %s ORDER BY message_id FOR UPDATE SKIP LOCKED
)

-- name: set_timers
INSERT INTO timers SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[])
ON CONFLICT (run_id, kind, place, number) DO UPDATE SET due = excluded.due

-- name: delete_timers
DELETE FROM timers WHERE run_id = ANY (%s::bigint[])

-- Keeps a task that was leased while the turn was decided: its worker is asked to stop it, and reports.
-- name: delete_tasks_of_round
DELETE FROM tasks WHERE run_id = ANY (%s::bigint[]) AND NOT is_stopping

-- tasks --------------------------------------------------------------------------------------------------------------

-- name: end_leases
WITH ended AS (
    DELETE FROM tasks USING unnest(%s::bigint[], %s::text[], %s::bigint[]) AS t (ticket, worker, run_id)
    WHERE tasks.ticket = t.ticket AND tasks.worker = t.worker AND tasks.worker <> '' AND tasks.run_id = t.run_id
    RETURNING 1
)
SELECT expect('lease', (SELECT count(*) FROM ended), %s::bigint)

-- name: queue_tasks
INSERT INTO tasks (run_id, place, attempt, ticket, worker, cpus, memory, gpus, labels, host, task, breaker, when_open,
                   nodes, timeout)
SELECT run_id, place, attempt, nextval('tickets'), worker, cpus, memory, gpus,
       labels::jsonb, host, task, breaker, when_open, nodes, timeout
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::float8[], %s::bigint[], %s::bigint[], %s::text[],
            %s::text[], %s::bytea[], %s::text[], %s::text[], %s::bigint[], %s::float8[])
     AS t (run_id, place, attempt, worker, cpus, memory, gpus, labels, host, task, breaker, when_open, nodes, timeout)
ON CONFLICT DO NOTHING

-- name: take_tasks
WITH taken AS (
    INSERT INTO tasks
        (run_id, place, attempt, ticket, worker, cpus, memory, gpus, labels, host, task, breaker, when_open,
         nodes, timeout, leased_at)
    SELECT run_id, place, attempt, nextval('tickets'), worker, cpus, memory, gpus, labels::jsonb, host, task,
           breaker, when_open, nodes, timeout, now_micros()
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::float8[], %s::bigint[], %s::bigint[],
                %s::text[], %s::text[], %s::bytea[], %s::text[], %s::text[], %s::bigint[], %s::float8[])
         AS t (run_id, place, attempt, worker, cpus, memory, gpus, labels, host, task, breaker, when_open,
               nodes, timeout)
    ON CONFLICT (run_id, place, attempt)
    DO UPDATE SET ticket = excluded.ticket, worker = excluded.worker, leased_at = excluded.leased_at
    WHERE tasks.worker = ''
    RETURNING run_id, place, attempt, ticket
)
SELECT taken.* FROM (SELECT expect('task', (SELECT count(*) FROM taken), %s::bigint)) AS e LEFT JOIN taken ON true

-- Executed after the tasks were taken, so that it sees their latest messages.
-- name: expect_free
SELECT expect('task', count(*), 0)
FROM messages JOIN unnest(%s::bigint[], %s::text[], %s::bigint[]) AS t (run_id, place, attempt)
     USING (run_id, place, attempt)

-- name: delete_queued
DELETE FROM tasks USING unnest(%s::bigint[], %s::text[], %s::bigint[]) AS t (run_id, place, attempt)
WHERE tasks.run_id = t.run_id AND tasks.place = t.place AND tasks.attempt = t.attempt AND worker = ''

-- name: stop_leased
WITH stopped AS (
    UPDATE tasks SET is_stopping = true, grace_seconds = t.grace_seconds
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::float8[]) AS t (run_id, place, attempt, grace_seconds)
    WHERE tasks.run_id = t.run_id AND tasks.place = t.place AND tasks.attempt = t.attempt AND worker <> ''
    RETURNING tasks.run_id
)
SELECT pg_notify(%s, run_id::text) FROM stopped

-- Until the end of the transaction. Tasks come and go faster than statistics: the planner believes that few wait, reads
-- all of them and sorts them, for each lease. This leaves it the index by ticket, and the plan of the first time.
-- name: read_by_index
SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)

-- What `core.effects.lease_rules` says is said here once more: a task that is left out afterwards would take the place
-- of another one. Only tasks that mention hosts to avoid are read for that.
-- name: free_tasks
WITH known AS (SELECT 1 FROM workers WHERE name = %(worker)s FOR KEY SHARE),
waiting AS (
    -- As far as it matters for `ahead_share`, and only if tasks may be leased ahead.
    SELECT count(*) AS queued FROM (
        SELECT 1 FROM tasks WHERE worker = '' AND %(ahead)s::bigint > 0
        LIMIT %(tasks_max)s::bigint + 4 * %(ahead)s::bigint
    ) AS free
)
SELECT t.task, (SELECT queued FROM waiting), now_micros(), t.cpus, t.memory, t.gpus, t.nodes
FROM tasks t JOIN runs r USING (run_id)
WHERE EXISTS (SELECT 1 FROM known)
      AND t.worker = '' AND t.cpus <= %(cpus)s AND t.memory <= %(memory)s AND t.gpus <= %(gpus)s
      AND t.cpus <> ALL(%(refused_cpus)s::double precision[])
      AND t.labels <@ %(labels)s::jsonb
      AND (t.host IN ('', %(host)s) OR t.host NOT IN (SELECT host FROM workers))
      AND r.status <> 'paused' AND (%(root)s::bigint IS NULL OR r.root_run_id = %(root)s::bigint)
      AND (%(project)s::text IS NULL OR r.project = %(project)s::text)
      AND (NOT %(is_guarded)s OR (t.breaker <> '' AND r.holder = %(worker)s))
      AND t.nodes BETWEEN %(nodes_min)s AND %(nodes)s
      AND (%(seconds_left)s::double precision IS NULL OR t.timeout IS NULL
           OR t.timeout <= %(seconds_left)s::double precision)
      -- Without what is escaped: PostgreSQL reads no JSON with a \u0000 in it.
      AND CASE WHEN position('"avoids":{'::bytea IN t.task) = 0 THEN true ELSE (
          SELECT coalesce(
              NOT (one.task -> 'avoids' -> 'hosts')::jsonb ? %(host)s::text
              OR (one.task -> 'avoids' ->> 'until')::timestamptz <= clock_timestamp(), true
          ) FROM (
              SELECT regexp_replace(convert_from(t.task, 'UTF8'), '\\(u[0-9a-fA-F]{4}|.)', '', 'g')::json AS task
          ) AS one
      ) END
      AND NOT EXISTS (SELECT 1 FROM unnest(%(lacks)s::bytea[]) AS folder WHERE position(folder IN t.task) > 0)
      AND t.breaker NOT IN (SELECT name FROM admitting_nobody)
      AND (t.when_open = 'fail' OR t.breaker NOT IN (
          SELECT name FROM breakers WHERE status = 'open' AND retry_at > now_micros()
      ))
ORDER BY t.ticket LIMIT %(tasks_max)s::bigint + (
    SELECT greatest(0, least(%(ahead)s::bigint, (queued - %(tasks_max)s::bigint) / 4)) FROM waiting
)
FOR UPDATE OF t SKIP LOCKED

-- The runs whose timer is due later than it was when a task was queued: a pause has moved it.
-- name: runs_with_time_left
SELECT run_id FROM timers WHERE run_id = ANY(%s::bigint[]) AND kind = 'run' AND due > now_micros()

-- name: lease_tasks
UPDATE tasks SET worker = %s, ticket = t.ticket, leased_at = now_micros()
FROM (
    SELECT run_id, place, attempt, nextval('tickets') AS ticket
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS u (run_id, place, attempt)
) AS t
WHERE tasks.run_id = t.run_id AND tasks.place = t.place AND tasks.attempt = t.attempt
RETURNING tasks.run_id, tasks.place, tasks.attempt, tasks.ticket

-- name: report
WITH ended AS (
    DELETE FROM tasks USING unnest(%s::bigint[], %s::bytea[]) WITH ORDINALITY AS t (ticket, report, number)
    WHERE tasks.ticket = t.ticket AND tasks.worker <> ''
    RETURNING run_id, place, attempt, tasks.ticket, t.report, t.number
), inserted AS (
    INSERT INTO messages (run_id, report, place, attempt)
    SELECT run_id, report, place, attempt FROM ended ORDER BY number
)
SELECT ended.ticket, holder = '', run_id FROM ended JOIN runs USING (run_id)

-- lists --------------------------------------------------------------------------------------------------------------

-- Candidates, the newest first. `sql_lists` chooses the shortest list.
--
-- Rows are compared, and not each column: with `status = …` a plan for any values takes the runs in the order of their
-- ids, and reads all of them to find the few that are running. No other index than the right one has this order.
-- name: candidates_by_status
SELECT run_id FROM runs
WHERE parent_run_id IS NULL
      AND (project, status, run_id) < (%(project)s, %(value)s, %(before)s::bigint)
      AND (project, status, run_id) > (%(project)s, %(value)s, %(after)s::bigint)
ORDER BY project DESC, status DESC, run_id DESC LIMIT %(limit)s::bigint

-- name: candidates_by_workflow
SELECT run_id FROM runs
WHERE parent_run_id IS NULL AND workflow = %(value)s
      AND (left(workflow, 200), run_id) < (left(%(value)s, 200), %(before)s::bigint)
      AND (left(workflow, 200), run_id) > (left(%(value)s, 200), %(after)s::bigint)
ORDER BY left(workflow, 200) DESC, run_id DESC LIMIT %(limit)s::bigint

-- name: candidates_by_starter
SELECT run_id FROM runs
WHERE parent_run_id IS NULL AND started_by = %(value)s
      AND (left(started_by, 200), run_id) < (left(%(value)s, 200), %(before)s::bigint)
      AND (left(started_by, 200), run_id) > (left(%(value)s, 200), %(after)s::bigint)
ORDER BY left(started_by, 200) DESC, run_id DESC LIMIT %(limit)s::bigint

-- name: candidates_by_attribute
SELECT run_id FROM attributes
WHERE (kind, name, value, run_id) < (%(kind)s, %(named)s, %(value)s, %(before)s::bigint)
      AND (kind, name, value, run_id) > (%(kind)s, %(named)s, %(value)s, %(after)s::bigint)
ORDER BY kind DESC, name DESC, value DESC, run_id DESC LIMIT %(limit)s::bigint

-- Among the newest runs, by their key: a word that many runs have is found there.
-- name: candidates_by_words_near
SELECT run_id FROM run_words
WHERE words @@ %(words)s::tsquery AND run_id < %(before)s::bigint AND run_id > %(after)s::bigint
ORDER BY run_id DESC LIMIT %(limit)s::bigint

-- All runs with the words, by the index, before any is left out: a word that few runs have.
-- name: candidates_by_words
WITH found AS MATERIALIZED (SELECT run_id FROM run_words WHERE words @@ %(words)s::tsquery)
SELECT run_id FROM found
WHERE run_id < %(before)s::bigint AND run_id > %(after)s::bigint
ORDER BY run_id DESC LIMIT %(limit)s::bigint

-- Between these runs are all that were created in a time, since the order of ids and of times differ by the skew.
-- name: time_bounds
SELECT (SELECT run_id FROM runs WHERE created_at >= %(until)s::bigint + (SELECT micros FROM skew)
        ORDER BY created_at LIMIT 1),
       (SELECT run_id FROM runs WHERE created_at < %(since)s::bigint - (SELECT micros FROM skew)
        ORDER BY created_at DESC LIMIT 1)

-- A child run has the attributes and the words of its root, and its own failures. The subqueries give one value each, so
-- that they are looked up for each run: joins would be turned into a search for all runs with the attribute.
-- name: runs_with_attribute
SELECT r.run_id FROM unnest(%s::bigint[]) AS r (run_id)
WHERE (SELECT a.value FROM attributes a
       WHERE a.run_id = (SELECT root_run_id FROM runs WHERE runs.run_id = r.run_id) AND a.kind = %s AND a.name = %s) = %s
ORDER BY r.run_id DESC

-- name: top_runs_with_attribute
SELECT r.run_id FROM unnest(%s::bigint[]) AS r (run_id)
WHERE (SELECT a.value FROM attributes a WHERE a.run_id = r.run_id AND a.kind = %s AND a.name = %s) = %s
ORDER BY r.run_id DESC

-- name: runs_with_failure
SELECT r.run_id FROM unnest(%s::bigint[]) AS r (run_id)
WHERE (SELECT count(*) FROM attributes a
       WHERE a.run_id = r.run_id AND a.kind = 'failure' AND a.name = ANY (%s::text[])) > 0
ORDER BY r.run_id DESC

-- name: runs_with_words
SELECT r.run_id FROM unnest(%s::bigint[]) AS r (run_id)
WHERE (SELECT t.words FROM run_words t
       WHERE t.run_id = (SELECT root_run_id FROM runs WHERE runs.run_id = r.run_id)) @@ %s::tsquery
ORDER BY r.run_id DESC

-- name: last_run_id
SELECT max(run_id) FROM runs

-- name: status_counts
SELECT status, count(*) FROM runs WHERE parent_run_id IS NULL GROUP BY status

-- From one to the next, whatever number of runs each has.
-- name: projects
WITH RECURSIVE projects (project) AS (
    (SELECT project FROM runs WHERE parent_run_id IS NULL ORDER BY project LIMIT 1)
    UNION ALL
    SELECT (
        SELECT r.project FROM runs r WHERE r.parent_run_id IS NULL AND r.project > projects.project
        ORDER BY r.project LIMIT 1
    ) FROM projects WHERE project IS NOT NULL
)
SELECT project FROM projects WHERE project IS NOT NULL

-- name: rows_of_kind
SELECT wanted.run_id, s.key, s.data
FROM unnest(%s::bigint[]) AS wanted (run_id)
CROSS JOIN LATERAL (
    SELECT key, data FROM rows WHERE rows.run_id = wanted.run_id AND kind = %s ORDER BY key LIMIT %s::bigint
) s

-- name: places_at
SELECT s.run_id, s.key, s.data
FROM unnest(%s::bigint[], %s::text[]) AS wanted (run_id, key)
JOIN rows s ON s.run_id = wanted.run_id AND s.kind = 'places' AND s.key = wanted.key

-- name: open_tasks
SELECT DISTINCT ON (r.root_run_id, t.worker, t.breaker)
       r.root_run_id, t.run_id, t.place, t.attempt, t.worker, t.breaker,
       count(*) OVER (PARTITION BY r.root_run_id, t.worker, t.breaker)
FROM runs r JOIN tasks t USING (run_id)
WHERE r.root_run_id = ANY (%s::bigint[]) AND r.status NOT IN ('completed', 'failed', 'cancelled')
ORDER BY r.root_run_id, t.worker, t.breaker, t.ticket

-- name: open_timers
SELECT DISTINCT ON (r.root_run_id, t.kind)
       r.root_run_id, t.run_id, t.kind, t.place, t.due, count(*) OVER (PARTITION BY r.root_run_id, t.kind)
FROM runs r JOIN timers t USING (run_id)
WHERE r.root_run_id = ANY (%s::bigint[]) AND r.status NOT IN ('completed', 'failed', 'cancelled')
      AND (t.kind IN ('retry', 'until', 'loop') OR (
          t.kind = 'attempt'
          AND NOT EXISTS (SELECT 1 FROM tasks x WHERE x.run_id = t.run_id AND x.place = t.place)
          AND NOT EXISTS (SELECT 1 FROM runs x WHERE x.parent_run_id = t.run_id AND x.parent_place = t.place)
          AND NOT EXISTS (
              SELECT 1 FROM rows x WHERE x.run_id = t.run_id AND x.kind = 'places' AND x.key = t.place AND x.tag <> ''
          )
      ))
ORDER BY r.root_run_id, t.kind, t.due

-- for a migration ----------------------------------------------------------------------------------------------------

-- Not the first message by `LIMIT 1`: for that, the server would read all messages in order, for every run.
-- name: stored_runs
SELECT r.run_id, r.workflow, r.status = 'failed', r.parent_run_id IS NOT NULL,
       coalesce(
           (SELECT entry FROM events e WHERE e.run_id = r.run_id AND e.seq = 1),
           (SELECT (array_agg(m.report ORDER BY m.id))[1] FROM messages m WHERE m.run_id = r.run_id)
       )
FROM runs r WHERE r.run_id > %s::bigint ORDER BY r.run_id LIMIT %s::bigint

-- name: fill_starters
UPDATE runs SET started_by = n.starter
FROM unnest(%s::bigint[], %s::text[]) AS n (run_id, starter) WHERE runs.run_id = n.run_id

-- name: fill_words
INSERT INTO run_words (run_id, started, inputs, failed)
SELECT n.run_id, array_to_tsvector(string_to_array(n.started, ' ')), array_to_tsvector(string_to_array(n.inputs, ' ')),
       array_to_tsvector(string_to_array(n.failed, ' '))
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[]) AS n (run_id, started, inputs, failed)

-- breakers -----------------------------------------------------------------------------------------------------------

-- name: ensure_breakers
INSERT INTO breakers (name) SELECT name FROM unnest(%s::text[]) AS name ORDER BY 1 ON CONFLICT DO NOTHING

-- Ordered by name, so that two transactions never wait for each other.
-- name: lock_breakers
SELECT name, status, failures, retry_at, probe, max_running
FROM breakers WHERE name = ANY (%s::text[]) ORDER BY name FOR UPDATE

-- A separate statement, after locking: one that has waited for a lock would still see the leases from before.
-- name: behind_breakers
SELECT n.name, n.name IN (SELECT name FROM probing), coalesce(behind.tasks, 0)
FROM unnest(%s::text[]) AS n (name) LEFT JOIN running_behind behind USING (name)

-- name: now
SELECT now_micros()

-- name: store_version
SELECT pg_current_snapshot()::text

-- name: put_breakers
UPDATE breakers SET status = t.status, failures = t.failures, retry_at = t.retry_at, probe = t.probe,
                    max_running = t.max_running
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
     AS t (name, status, failures, retry_at, probe, max_running)
WHERE breakers.name = t.name

-- name: reset_breaker
WITH closed AS (
    UPDATE breakers SET status = 'closed', failures = 0, retry_at = NULL, probe = NULL, max_running = NULL
    WHERE name = %s RETURNING 1
)
SELECT pg_notify(%s, 'breakers') FROM closed

-- time ---------------------------------------------------------------------------------------------------------------

-- Reads the time once, so that the index can be used.
-- name: due_timers
DELETE FROM timers USING runs
WHERE timers.run_id = runs.run_id AND due <= (SELECT now_micros())
      AND (%(root)s::bigint IS NULL OR root_run_id = %(root)s::bigint)
RETURNING now_micros(), due, timers.run_id, kind, place, number

-- Below one root, starting from its runs: there may be ten thousand other timers.
-- name: next_timer
SELECT due <= now_micros() FROM (
    (SELECT due FROM timers WHERE %(root)s::bigint IS NULL ORDER BY due LIMIT 1)
    UNION ALL
    SELECT due FROM runs JOIN timers USING (run_id)
    WHERE root_run_id = %(root)s::bigint AND status NOT IN ('completed', 'failed', 'cancelled')
) AS next
ORDER BY due LIMIT 1

-- name: next_due
(SELECT due FROM timers WHERE %(root)s::bigint IS NULL ORDER BY due LIMIT 1)
UNION ALL
SELECT due FROM runs JOIN timers USING (run_id)
WHERE root_run_id = %(root)s::bigint AND status NOT IN ('completed', 'failed', 'cancelled')
UNION ALL
SELECT b.retry_at FROM breakers b
WHERE b.status = 'open' AND b.retry_at > now_micros() AND EXISTS (
    SELECT 1 FROM tasks t JOIN runs r USING (run_id)
    WHERE t.breaker <> '' AND t.breaker = b.name AND t.worker = ''
          AND r.status <> 'paused' AND (%(root)s::bigint IS NULL OR r.root_run_id = %(root)s::bigint)
)
ORDER BY 1 LIMIT 1

-- workflows ----------------------------------------------------------------------------------------------------------

-- From name to name: older versions are skipped.
-- name: newest_versions
WITH RECURSIVE names (name, place) AS (
    (SELECT name, 1 FROM workflow_versions WHERE project = %(project)s AND name > %(after)s ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT v.name FROM workflow_versions v WHERE v.project = %(project)s AND v.name > names.name
            ORDER BY v.name LIMIT 1), place + 1
    FROM names WHERE name IS NOT NULL AND place < %(limit)s
)
SELECT v.project, v.name, v.number, digest, published_at, published_by, format, note, labels, ''::bytea
FROM names CROSS JOIN LATERAL (
    SELECT * FROM workflow_versions n WHERE n.project = %(project)s AND n.name = names.name ORDER BY number DESC LIMIT 1
) v
ORDER BY v.name

-- retention ----------------------------------------------------------------------------------------------------------

-- name: table_sizes
SELECT c.relname::text, greatest(c.reltuples, coalesce(s.n_live_tup, 0), 0)::bigint, pg_total_relation_size(c.oid)
FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1

-- notices ------------------------------------------------------------------------------------------------------------

-- A sender that was late must not send again what another one has sent.
-- name: settle_notices
UPDATE notices n SET status = s.status, attempts = s.attempts, due_at = s.due_at, reason = s.reason, claimed_until = 0
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[]) AS s (id, status, attempts, due_at, reason)
WHERE n.id = s.id AND n.status <> 'sent'

-- Each target for which something waits, found by jumping from one to the next in the index.
-- name: waiting_targets
WITH RECURSIVE found (target) AS (
    (SELECT target FROM notices WHERE status = 'waiting' ORDER BY target LIMIT 1)
    UNION ALL
    SELECT (SELECT n.target FROM notices n WHERE n.status = 'waiting' AND n.target > found.target
            ORDER BY n.target LIMIT 1)
    FROM found WHERE found.target IS NOT NULL
)
SELECT found.target,
       coalesce(
           (SELECT n.due_at FROM notices n
            WHERE n.status = 'waiting' AND n.target = found.target AND n.claimed_until <= %(now)s
            ORDER BY n.due_at LIMIT 1),
           (SELECT min(n.claimed_until) FROM notices n WHERE n.status = 'waiting' AND n.target = found.target)
       ),
       t.failures, t.since, t.retry_at, t.reason
FROM found LEFT JOIN notice_targets t ON t.target = found.target WHERE found.target IS NOT NULL

-- logs ---------------------------------------------------------------------------------------------------------------

-- What is stored is never replaced: of a piece that begins within it, what goes beyond its end is appended. `first` is
-- where the pieces of a log begin that are written together, each of which begins where the one before ends.
-- name: append_log
INSERT INTO log_chunks
SELECT n.run_id, n.place, n.attempt, n.stream, greatest(n.start, known.size),
       n.start + n.size - greatest(n.start, known.size), n.is_last <> 0,
       substring(n.data FROM (greatest(n.start, known.size) - n.start + 1)::integer)
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[],
            %s::bigint[]) AS n (run_id, place, attempt, stream, start, size, is_last, data, first)
CROSS JOIN LATERAL (
    SELECT coalesce(max(c.start + c.size), 0) AS size, coalesce(bool_or(c.is_last), false) AS is_whole
    FROM log_chunks c
    WHERE (c.run_id, c.place, c.attempt, c.stream) = (n.run_id, n.place, n.attempt, n.stream)
) known
WHERE NOT known.is_whole AND n.first <= known.size
      AND (n.start + n.size > known.size OR (n.is_last <> 0 AND n.start + n.size = known.size))
ORDER BY n.run_id, n.place, n.attempt, n.stream, n.start
ON CONFLICT DO NOTHING
