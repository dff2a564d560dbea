-- The statements that are the same in both databases, by name. `statements` translates what PostgreSQL writes in another
-- way than SQLite. For SQLite alone are `INDEXED BY`, and the `CROSS` of a join on something: it keeps the order of tables.

-- workers ------------------------------------------------------------------------------------------------------------

-- name: register
INSERT INTO workers (name, host, record, beat_at) VALUES (%(name)s, %(host)s, %(record)s, now_micros())
ON CONFLICT (name) DO UPDATE SET host = excluded.host, record = excluded.record, beat_at = excluded.beat_at

-- name: worker_record
SELECT record FROM workers WHERE name = %s FOR UPDATE

-- name: update_worker
UPDATE workers SET record = %s WHERE name = %s

-- name: record_heartbeat
UPDATE workers SET beat_at = now_micros() WHERE name = %(name)s RETURNING beat_at

-- name: workers
SELECT record, beat_at < now_micros() - %(lease)s::bigint, beat_at FROM workers ORDER BY name

-- name: remove_worker
DELETE FROM workers WHERE name = %(name)s AND (%(is_dead)s OR beat_at < now_micros() - %(lease)s::bigint)
RETURNING now_micros()

-- name: void_turns
UPDATE runs SET holder = '' WHERE holder = %s AND holder <> ''

-- name: void_leases
DELETE FROM tasks WHERE worker = %s AND worker <> '' RETURNING run_id, place, attempt

-- runs ---------------------------------------------------------------------------------------------------------------

-- name: insert_attributes
INSERT INTO attributes SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[])

-- name: run
SELECT {run_columns} FROM runs WHERE run_id = %s

-- name: runs
SELECT {run_columns} FROM runs
WHERE run_id < %(before)s::bigint AND (cardinality(%(statuses)s::text[]) = 0 OR status = ANY (%(statuses)s::text[]))
ORDER BY run_id DESC LIMIT %(limit)s::bigint

-- Uses the index of unfinished runs: there may be a hundred thousand others.
-- name: unfinished_runs
SELECT {run_columns} FROM runs INDEXED BY runs_unfinished
WHERE status NOT IN ('completed', 'failed', 'cancelled')
      AND run_id < %(before)s::bigint AND status = ANY (%(statuses)s::text[])
ORDER BY run_id DESC LIMIT %(limit)s::bigint

-- name: children
SELECT {run_columns} FROM runs WHERE parent_run_id = %s ORDER BY run_id

-- name: runs_with_ids
SELECT {run_columns} FROM runs WHERE run_id = ANY (%s::bigint[]) ORDER BY run_id DESC

-- name: waiting_places
SELECT run_id, key, tag, root_run_id FROM rows INDEXED BY rows_by_tag CROSS JOIN runs USING (run_id)
WHERE tag <> '' AND tag IN ('parked', 'approval', 'paused', 'event') AND status NOT IN ('completed', 'failed', 'cancelled')
ORDER BY run_id, key

-- From the newest run back; stops as soon as there are enough.
-- name: recent_rows
SELECT r.run_id, s.data
FROM runs r CROSS JOIN rows s ON s.run_id = r.run_id AND s.kind = %s AND s.key = %s
                         AND s.tag NOT IN ('parked', 'approval', 'paused', 'event')
WHERE r.workflow = %s ORDER BY r.run_id DESC LIMIT %s::bigint

-- name: tagged_rows
SELECT run_id, status, key, data FROM rows INDEXED BY rows_by_tag CROSS JOIN runs USING (run_id)
WHERE tag <> '' AND tag = %(tag)s
      AND (%(beside)s::bigint IS NULL OR project = (SELECT b.project FROM runs b WHERE b.run_id = %(beside)s::bigint))
ORDER BY run_id DESC, key LIMIT %(limit)s::bigint

-- Complete trees in which every run has ended, none has a holder, and no inbox has a message; by force all of them.
-- name: removable
WITH RECURSIVE trees (run_id) AS (
    SELECT run_id FROM runs WHERE run_id = ANY(%(wanted)s::bigint[]) AND (%(is_forced)s OR run_id = root_run_id)
    UNION SELECT r.run_id FROM trees t CROSS JOIN runs r ON r.parent_run_id = t.run_id
)
SELECT run_id, version, project FROM trees CROSS JOIN runs USING (run_id)
WHERE %(is_forced)s OR root_run_id NOT IN (
    SELECT root_run_id FROM runs WHERE status NOT IN ('completed', 'failed', 'cancelled')
    UNION ALL SELECT root_run_id FROM runs WHERE holder <> ''
    UNION ALL SELECT root_run_id FROM messages JOIN runs USING (run_id)
)
ORDER BY run_id

-- name: remove_rows
DELETE FROM rows WHERE run_id = ANY (%s::bigint[])

-- name: remove_tasks
DELETE FROM tasks WHERE run_id = ANY (%s::bigint[])

-- name: remove_timers
DELETE FROM timers WHERE run_id = ANY (%s::bigint[])

-- name: remove_starts
DELETE FROM starts WHERE run_id = ANY (%s::bigint[])

-- name: remove_attributes
DELETE FROM attributes WHERE run_id = ANY (%s::bigint[])

-- name: remove_messages
DELETE FROM messages WHERE run_id = ANY (%s::bigint[])

-- name: remove_runs
DELETE FROM runs WHERE run_id = ANY (%s::bigint[])

-- inboxes ------------------------------------------------------------------------------------------------------------

-- name: answer
DELETE FROM answers WHERE message_id = %s RETURNING answer

-- name: inbox
SELECT id, run_id, report, is_asking FROM messages WHERE run_id = ANY (%s::bigint[]) ORDER BY id

-- name: inboxes_of
SELECT id, run_id, report, is_asking FROM messages JOIN runs USING (run_id) WHERE holder = %s ORDER BY id

-- name: runs_with_messages
SELECT DISTINCT run_id FROM messages JOIN runs USING (run_id)
WHERE holder IN ('', %(holder)s) AND (%(root)s::bigint IS NULL OR root_run_id = %(root)s::bigint)
ORDER BY run_id

-- tasks --------------------------------------------------------------------------------------------------------------

-- name: queued_tasks
SELECT place, attempt FROM tasks WHERE run_id = %s AND worker = '' ORDER BY ticket

-- name: leases_of
SELECT task, ticket FROM tasks WHERE worker = %s AND worker <> '' ORDER BY ticket

-- name: has_leases
SELECT 1 FROM tasks WHERE run_id = %s AND worker <> '' LIMIT 1

-- name: stop_requests
SELECT ticket, grace_seconds FROM tasks WHERE worker = %s AND worker <> '' AND is_stopping ORDER BY ticket

-- What the tasks ask for that any new worker may take, and how many ask for the same; those of the oldest task first.
-- name: queued_shapes
SELECT t.cpus, t.memory, t.gpus, t.labels::text, t.nodes, t.timeout, count(*)
FROM tasks t INDEXED BY tasks_free JOIN runs r USING (run_id)
WHERE t.worker = '' AND (t.host = '' OR t.host NOT IN (SELECT host FROM workers))
      AND r.status <> 'paused' AND (%(project)s::text IS NULL OR r.project = %(project)s::text)
      AND t.breaker NOT IN (SELECT name FROM admitting_nobody)
      AND (t.when_open = 'fail' OR t.breaker NOT IN (
          SELECT name FROM breakers WHERE status = 'open' AND retry_at > now_micros()
      ))
GROUP BY t.cpus, t.memory, t.gpus, t.labels, t.nodes, t.timeout
ORDER BY min(t.ticket)

-- name: tasks_of_shape
SELECT t.run_id, t.place, t.attempt
FROM tasks t INDEXED BY tasks_free JOIN runs r USING (run_id)
WHERE t.worker = '' AND (t.host = '' OR t.host NOT IN (SELECT host FROM workers))
      AND r.status <> 'paused' AND (%(project)s::text IS NULL OR r.project = %(project)s::text)
      AND t.cpus = %(cpus)s AND t.memory = %(memory)s AND t.gpus = %(gpus)s AND t.labels = %(labels)s::jsonb
      AND t.nodes = %(nodes)s AND t.timeout IS NOT DISTINCT FROM %(timeout)s::float8
ORDER BY t.ticket FOR UPDATE OF t SKIP LOCKED

-- lists --------------------------------------------------------------------------------------------------------------

-- Candidates, the newest first. `sql_lists` chooses the shortest list.
-- name: candidates_of_all
SELECT run_id FROM runs
WHERE (%(with_children)s::boolean OR parent_run_id IS NULL) AND run_id < %(before)s::bigint AND run_id > %(after)s::bigint
ORDER BY run_id DESC LIMIT %(limit)s::bigint

-- The filters are those of `run_filters`.
-- name: matching_runs
SELECT run_id FROM runs
WHERE run_id = ANY (%(run_ids)s::bigint[])
      AND {filters}
ORDER BY run_id DESC

-- name: status_counts_of_project
SELECT status, count(*) FROM runs INDEXED BY runs_by_status
WHERE parent_run_id IS NULL AND project = %s GROUP BY status

-- name: outcome_counts
SELECT workflow, status, degraded, count(*) FROM runs INDEXED BY runs_by_creation
WHERE created_at >= %(since)s::bigint AND created_at < %(until)s::bigint AND parent_run_id IS NULL
      AND (%(project)s::text IS NULL OR project = %(project)s::text)
GROUP BY workflow, status, degraded ORDER BY workflow COLLATE "C", status COLLATE "C", degraded

-- name: attributes
SELECT run_id, kind, name, value FROM attributes WHERE run_id = ANY (%s::bigint[]) AND kind IN ('input', 'label')
ORDER BY run_id, kind, name

-- name: leased_tasks
SELECT t.worker, t.run_id, r.workflow, t.place, t.attempt, t.cpus, t.memory, t.gpus, t.leased_at
FROM tasks t JOIN runs r USING (run_id) WHERE t.worker <> '' ORDER BY t.worker, t.ticket

-- name: holders
SELECT holder, count(*), min(run_id) FROM runs WHERE holder <> '' GROUP BY holder ORDER BY holder

-- for a migration ----------------------------------------------------------------------------------------------------

-- name: stored_attributes
SELECT run_id, kind, name, value FROM attributes WHERE run_id = ANY (%s::bigint[])

-- name: stored_failures
SELECT run_id, data FROM rows WHERE run_id = ANY (%s::bigint[]) AND kind = 'failures'

-- breakers -----------------------------------------------------------------------------------------------------------

-- name: breakers
SELECT b.name, b.status, b.failures, b.retry_at,
       (SELECT count(*) FROM tasks t WHERE t.breaker <> '' AND t.breaker = b.name AND t.worker = ''),
       coalesce(behind.tasks, 0), b.max_running
FROM breakers b LEFT JOIN running_behind behind USING (name) ORDER BY b.name

-- workflows ----------------------------------------------------------------------------------------------------------

-- name: newest_version
SELECT project, name, number, digest, published_at, published_by, format, note, labels, text
FROM workflow_versions WHERE project = %s AND name = %s ORDER BY number DESC LIMIT 1

-- name: version_numbered
SELECT project, name, number, digest, published_at, published_by, format, note, labels, text
FROM workflow_versions WHERE project = %s AND name = %s AND number = %s

-- name: insert_version
INSERT INTO workflow_versions VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: versions
SELECT project, name, number, digest, published_at, published_by, format, note, labels, ''::bytea
FROM workflow_versions WHERE project = %s AND name = %s AND number < %s ORDER BY number DESC LIMIT %s

-- documents ----------------------------------------------------------------------------------------------------------

-- name: document
SELECT kind, project, name, data, updated_at, updated_by, revision FROM documents
WHERE project = %s AND kind = %s AND name = %s

-- name: documents
SELECT kind, project, name, data, updated_at, updated_by, revision FROM documents
WHERE kind = %(kind)s AND (%(project)s::text IS NULL OR project = %(project)s::text) ORDER BY project, name

-- name: put_document
INSERT INTO documents VALUES (%s, %s, %s, %s, %s, %s, 1)
ON CONFLICT (kind, project, name) DO UPDATE
SET data = excluded.data, updated_at = excluded.updated_at, updated_by = excluded.updated_by,
    revision = documents.revision + 1
RETURNING revision

-- name: insert_document
INSERT INTO documents VALUES (%s, %s, %s, %s, %s, %s, 1) ON CONFLICT DO NOTHING RETURNING revision

-- name: update_document
UPDATE documents
SET data = %(data)s, updated_at = %(updated_at)s, updated_by = %(updated_by)s, revision = revision + 1
WHERE kind = %(kind)s AND project = %(project)s AND name = %(named)s AND revision = %(expected)s
RETURNING revision

-- name: document_revision
SELECT revision FROM documents WHERE project = %s AND kind = %s AND name = %s

-- name: delete_document
DELETE FROM documents
WHERE project = %(project)s AND kind = %(kind)s AND name = %(named)s
      AND (%(expected)s::bigint IS NULL OR revision = %(expected)s::bigint)
RETURNING 1

-- tokens and audit ---------------------------------------------------------------------------------------------------

-- name: insert_token
INSERT INTO tokens VALUES (%s, %s, %s, %s, %s)

-- name: token_of
SELECT record, revoked_at FROM tokens WHERE digest = %s

-- name: tokens
SELECT record, revoked_at FROM tokens ORDER BY created_at DESC, id

-- name: revoke_token
UPDATE tokens SET revoked_at = coalesce(revoked_at, %(at)s) WHERE id = %(id)s RETURNING 1

-- name: insert_audit
INSERT INTO audit (at, who, action, target, status, project, token_id, why, source)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[],
                     %s::text[], %s::text[])

-- name: audit
SELECT id, at, who, action, target, status, project, token_id, why, source FROM audit
WHERE id < %(before)s AND (%(who)s::text = '' OR who = %(who)s::text)
      AND (%(action)s::text = '' OR action = %(action)s::text)
ORDER BY id DESC LIMIT %(limit)s

-- name: audit_of_project
SELECT id, at, who, action, target, status, project, token_id, why, source FROM audit INDEXED BY audit_by_project
WHERE id < %(before)s AND (%(who)s::text = '' OR who = %(who)s::text)
      AND (%(action)s::text = '' OR action = %(action)s::text) AND project = %(project)s
ORDER BY id DESC LIMIT %(limit)s

-- name: count_audit
SELECT count(*) FROM audit INDEXED BY audit_by_token
WHERE token_id <> '' AND token_id = %s AND action = ANY (%s::text[]) AND at >= %s AND status < 400

-- retention ----------------------------------------------------------------------------------------------------------

-- name: remove_audit
DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT %(limit)s) AND at < %(before)s RETURNING 1

-- name: remove_tokens
DELETE FROM tokens WHERE id = ANY (%s::text[]) RETURNING 1

-- name: newest_answer
SELECT coalesce(max(message_id), 0) FROM answers

-- name: remove_answers
DELETE FROM answers WHERE message_id IN (
    SELECT message_id FROM answers WHERE message_id <= %s ORDER BY message_id LIMIT %s FOR UPDATE SKIP LOCKED
)
RETURNING 1

-- notices ------------------------------------------------------------------------------------------------------------

-- name: insert_notices
INSERT INTO notices (key, target, created_at, run_id, project, status, attempts, due_at, reason, body)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::bigint[],
                     %s::bigint[], %s::text[], %s::bytea[])
ON CONFLICT DO NOTHING RETURNING 1

-- The oldest that nobody else has.
-- name: claim_notices
UPDATE notices SET claimed_until = %(until)s WHERE id IN (
    SELECT id FROM notices INDEXED BY notices_waiting
    WHERE status = 'waiting' AND target = %(target)s AND due_at <= %(now)s AND claimed_until <= %(now)s
    ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id, key, target, created_at, run_id, project, status, attempts, due_at, reason, body

-- name: release_notices
UPDATE notices SET claimed_until = 0 WHERE id = ANY (%s::bigint[]) AND status = 'waiting'

-- name: make_notices_due
UPDATE notices SET due_at = %(now)s WHERE status = 'waiting' AND due_at > %(now)s AND claimed_until <= %(now)s

-- What waits for a target waits for the time of the target, too.
-- name: notices
SELECT id, key, n.target, created_at, run_id, project, status, attempts,
       CASE WHEN status = 'waiting' AND t.retry_at > due_at THEN t.retry_at ELSE due_at END,
       CASE WHEN status = 'waiting' AND t.retry_at > due_at AND n.reason = '' THEN t.reason ELSE n.reason END, body
FROM notices n LEFT JOIN notice_targets t ON t.target = n.target
WHERE id < %(before)s AND (%(status)s::text IS NULL OR status = %(status)s::text)
  AND (%(project)s::text IS NULL OR project = %(project)s::text)
  AND (%(run_id)s::bigint IS NULL OR run_id = %(run_id)s::bigint)
ORDER BY id DESC LIMIT %(limit)s

-- name: put_target_pause
INSERT INTO notice_targets VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (target) DO UPDATE SET failures = excluded.failures, since = excluded.since, retry_at = excluded.retry_at,
                                   reason = excluded.reason

-- name: end_target_pause
DELETE FROM notice_targets WHERE target = %s

-- name: remove_target_pauses
DELETE FROM notice_targets WHERE retry_at < %s

-- name: end_all_target_pauses
DELETE FROM notice_targets

-- name: remove_notices
DELETE FROM notices WHERE status <> 'waiting' AND created_at < %s RETURNING 1

-- What waits is sent all the same.
-- name: remove_notices_of_runs
DELETE FROM notices WHERE run_id <> 0 AND run_id = ANY (%s::bigint[]) AND status <> 'waiting'

-- logs ---------------------------------------------------------------------------------------------------------------

-- name: read_log
SELECT start, data FROM log_chunks
WHERE run_id = %s AND place = %s AND attempt = %s AND stream = %s AND start + size > %s AND start < %s ORDER BY start

-- name: log_extents
SELECT start, size, is_last FROM log_chunks
WHERE run_id = %s AND place = %s AND attempt = %s AND stream = %s ORDER BY start

-- name: logs_of
SELECT DISTINCT run_id, place, attempt, stream FROM log_chunks WHERE run_id = %s ORDER BY place, attempt, stream

-- name: remove_log_chunks
DELETE FROM log_chunks WHERE run_id = ANY (%s::bigint[])
