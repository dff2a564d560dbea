-- The statements for what a server keeps in the PostgreSQL store, by name.

-- workflows ----------------------------------------------------------------------------------------------------------

-- Two that publish the same name at once come one after the other.
-- name: lock_workflow_name
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' workflow ' || %s::text || '/' || %s::text, 0))

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
WHERE id < %(before)s AND (%(project)s::text IS NULL OR project = %(project)s::text)
      AND (%(who)s::text = '' OR who = %(who)s::text) AND (%(action)s::text = '' OR action = %(action)s::text)
ORDER BY id DESC LIMIT %(limit)s

-- Two that count the decisions of a token at once come one after the other.
-- name: lock_token
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' token ' || %s::text, 0))

-- name: count_audit
SELECT count(*) FROM audit
WHERE token_id <> '' AND token_id = %s AND action = ANY (%s::text[]) AND at >= %s AND status < 400

-- retention ----------------------------------------------------------------------------------------------------------

-- name: remove_audit
DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT %(limit)s) AND at < %(before)s RETURNING 1

-- name: remove_tokens
DELETE FROM tokens WHERE id = ANY(%s::text[]) RETURNING 1

-- name: newest_answer
SELECT coalesce(max(message_id), 0) FROM answers

-- name: remove_answers
DELETE FROM answers WHERE message_id IN (
    SELECT message_id FROM answers WHERE message_id <= %s ORDER BY message_id LIMIT %s FOR UPDATE SKIP LOCKED
)
RETURNING 1

-- name: table_sizes
SELECT c.relname::text, greatest(c.reltuples, coalesce(s.n_live_tup, 0), 0)::bigint, pg_total_relation_size(c.oid)
FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1

-- notices ------------------------------------------------------------------------------------------------------------

-- name: insert_notices
INSERT INTO notices (key, target, created_at, run_id, project, status, attempts, due_at, reason, body)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::bigint[],
                     %s::bigint[], %s::text[], %s::bytea[])
ON CONFLICT DO NOTHING RETURNING 1

-- The oldest that nobody else has.
-- name: claim_notices
UPDATE notices SET claimed_until = %(until)s WHERE id IN (
    SELECT id FROM notices
    WHERE status = 'waiting' AND target = %(target)s AND due_at <= %(now)s AND claimed_until <= %(now)s
    ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id, key, target, created_at, run_id, project, status, attempts, due_at, reason, body

-- A sender that was late must not send again what another one has sent.
-- name: settle_notices
UPDATE notices n SET status = s.status, attempts = s.attempts, due_at = s.due_at, reason = s.reason, claimed_until = 0
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[]) AS s (id, status, attempts, due_at, reason)
WHERE n.id = s.id AND n.status <> 'sent'

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
