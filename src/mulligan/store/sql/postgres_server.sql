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

-- name: claim_notices
UPDATE notices SET due_at = %(until)s WHERE id IN (
    SELECT id FROM notices WHERE status = 'waiting' AND due_at <= %(now)s
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id, key, target, created_at, run_id, project, status, attempts, due_at, reason, body

-- A sender that was late must not send again what another one has sent.
-- name: settle_notice
UPDATE notices SET status = %(status)s, attempts = %(attempts)s, due_at = %(due_at)s, reason = %(reason)s
WHERE id = %(id)s AND status <> 'sent'

-- name: notices
SELECT id, key, target, created_at, run_id, project, status, attempts, due_at, reason, body FROM notices
WHERE id < %(before)s AND (%(status)s::text IS NULL OR status = %(status)s::text)
  AND (%(project)s::text IS NULL OR project = %(project)s::text)
  AND (%(run_id)s::bigint IS NULL OR run_id = %(run_id)s::bigint)
ORDER BY id DESC LIMIT %(limit)s

-- name: next_notice_due
SELECT min(due_at) FROM notices WHERE status = 'waiting'

-- name: remove_notices
DELETE FROM notices WHERE status <> 'waiting' AND created_at < %s RETURNING 1

-- What waits is sent all the same.
-- name: remove_notices_of_runs
DELETE FROM notices WHERE run_id <> 0 AND run_id = ANY (%s::bigint[]) AND status <> 'waiting'

-- logs ---------------------------------------------------------------------------------------------------------------

-- A piece that begins at the same position may be longer now.
-- name: append_log
INSERT INTO log_chunks
SELECT run_id, place, attempt, stream, start, size, is_last <> 0, data
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])
     AS n (run_id, place, attempt, stream, start, size, is_last, data)
ORDER BY run_id, place, attempt, stream, start
ON CONFLICT (run_id, place, attempt, stream, start) DO UPDATE
SET data = CASE WHEN excluded.size > log_chunks.size THEN excluded.data ELSE log_chunks.data END,
    size = greatest(excluded.size, log_chunks.size), is_last = excluded.is_last
WHERE excluded.size > log_chunks.size OR (excluded.size = log_chunks.size AND excluded.is_last > log_chunks.is_last)

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
