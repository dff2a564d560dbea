-- The statements for what a server keeps in the SQLite store, by name.

-- workflows ----------------------------------------------------------------------------------------------------------

-- name: newest_version
SELECT project, name, number, digest, published_at, published_by, format, note, labels, text
FROM workflow_versions WHERE project = ?1 AND name = ?2 ORDER BY number DESC LIMIT 1

-- name: version_numbered
SELECT project, name, number, digest, published_at, published_by, format, note, labels, text
FROM workflow_versions WHERE project = ?1 AND name = ?2 AND number = ?3

-- name: insert_version
INSERT INTO workflow_versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: versions
SELECT project, name, number, digest, published_at, published_by, format, note, labels, x''
FROM workflow_versions WHERE project = ?1 AND name = ?2 AND number < ?3 ORDER BY number DESC LIMIT ?4

-- From name to name: older versions are skipped.
-- name: newest_versions
WITH RECURSIVE names (name) AS (
    SELECT min(name) FROM workflow_versions WHERE project = ?1 AND name > ?2
    UNION ALL
    SELECT (SELECT min(v.name) FROM workflow_versions v WHERE v.project = ?1 AND v.name > names.name)
    FROM names WHERE name IS NOT NULL
    LIMIT ?3
)
SELECT v.project, v.name, v.number, digest, published_at, published_by, format, note, labels, x''
FROM names CROSS JOIN workflow_versions v ON v.project = ?1 AND v.name = names.name AND v.number = (
    SELECT max(number) FROM workflow_versions n WHERE n.project = ?1 AND n.name = names.name
)
ORDER BY v.name

-- documents ----------------------------------------------------------------------------------------------------------

-- name: document
SELECT kind, project, name, data, updated_at, updated_by, revision FROM documents
WHERE project = ?1 AND kind = ?2 AND name = ?3

-- name: documents
SELECT kind, project, name, data, updated_at, updated_by, revision FROM documents
WHERE kind = ?1 AND (?2 IS NULL OR project = ?2) ORDER BY project, name

-- name: put_document
INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, 1)
ON CONFLICT DO UPDATE SET data = excluded.data, updated_at = excluded.updated_at, updated_by = excluded.updated_by,
                          revision = documents.revision + 1
RETURNING revision

-- name: insert_document
INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, 1) ON CONFLICT DO NOTHING RETURNING revision

-- name: update_document
UPDATE documents SET data = ?4, updated_at = ?5, updated_by = ?6, revision = revision + 1
WHERE kind = ?1 AND project = ?2 AND name = ?3 AND revision = ?7
RETURNING revision

-- name: document_revision
SELECT revision FROM documents WHERE project = ?1 AND kind = ?2 AND name = ?3

-- name: delete_document
DELETE FROM documents WHERE project = ?1 AND kind = ?2 AND name = ?3 AND (?4 IS NULL OR revision = ?4) RETURNING 1

-- tokens and audit ---------------------------------------------------------------------------------------------------

-- name: insert_token
INSERT INTO tokens VALUES (?, ?, ?, ?, ?)

-- name: token_of
SELECT record, revoked_at FROM tokens WHERE digest = ?

-- name: tokens
SELECT record, revoked_at FROM tokens ORDER BY created_at DESC, id

-- name: revoke_token
UPDATE tokens SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1 RETURNING 1

-- name: insert_audit
INSERT INTO audit (at, who, action, target, status, project, token_id, why, source) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: audit
SELECT id, at, who, action, target, status, project, token_id, why, source FROM audit
WHERE id < ?1 AND (?2 = '' OR who = ?2) AND (?3 = '' OR action = ?3) ORDER BY id DESC LIMIT ?4

-- name: audit_of_project
SELECT id, at, who, action, target, status, project, token_id, why, source FROM audit INDEXED BY audit_by_project
WHERE id < ?1 AND (?2 = '' OR who = ?2) AND (?3 = '' OR action = ?3) AND project = ?5 ORDER BY id DESC LIMIT ?4

-- name: count_audit
SELECT count(*) FROM audit INDEXED BY audit_by_token
WHERE token_id <> '' AND token_id = ?1 AND at >= ?3 AND status < 400 AND action IN (SELECT value FROM json_each(?2))

-- retention ----------------------------------------------------------------------------------------------------------

-- name: remove_audit
DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT ?2) AND at < ?1 RETURNING 1

-- name: remove_tokens
DELETE FROM tokens WHERE id IN (SELECT value FROM json_each(?)) RETURNING 1

-- name: newest_answer
SELECT coalesce(max(message_id), 0) FROM answers

-- name: remove_answers
DELETE FROM answers WHERE message_id IN (SELECT message_id FROM answers WHERE message_id <= ?1 ORDER BY message_id LIMIT ?2)
RETURNING 1

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name

-- name: table_bytes
SELECT coalesce(s.tbl_name, d.name), sum(d.pgsize) FROM dbstat d LEFT JOIN sqlite_schema s ON s.name = d.name
WHERE d.aggregate GROUP BY 1

-- notices ------------------------------------------------------------------------------------------------------------

-- name: insert_notice
INSERT INTO notices (key, target, created_at, run_id, project, status, attempts, due_at, reason, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- The oldest that nobody else has.
-- name: claim_notices
UPDATE notices SET claimed_until = ?3 WHERE id IN (
    SELECT id FROM notices INDEXED BY notices_waiting
    WHERE status = 'waiting' AND target = ?1 AND due_at <= ?2 AND claimed_until <= ?2 ORDER BY due_at, id LIMIT ?4
)
RETURNING id, key, target, created_at, run_id, project, status, attempts, due_at, reason, body

-- A sender that was late must not send again what another one has sent.
-- name: settle_notice
UPDATE notices SET status = ?2, attempts = ?3, due_at = ?4, reason = ?5, claimed_until = 0
WHERE id = ?1 AND status <> 'sent'

-- name: release_notices
UPDATE notices SET claimed_until = 0 WHERE id IN (SELECT value FROM json_each(?)) AND status = 'waiting'

-- name: make_notices_due
UPDATE notices SET due_at = ?1 WHERE status = 'waiting' AND due_at > ?1 AND claimed_until <= ?1

-- What waits for a target waits for the time of the target, too.
-- name: notices
SELECT id, key, n.target, created_at, run_id, project, status, attempts,
       iif(status = 'waiting' AND t.retry_at > due_at, t.retry_at, due_at),
       iif(status = 'waiting' AND t.retry_at > due_at AND n.reason = '', t.reason, n.reason), body
FROM notices n LEFT JOIN notice_targets t USING (target)
WHERE id < ?1 AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR project = ?3) AND (?4 IS NULL OR run_id = ?4)
ORDER BY id DESC LIMIT ?5

-- Each target for which something waits, found by jumping from one to the next in the index.
-- name: waiting_targets
WITH RECURSIVE found (target) AS (
    SELECT min(target) FROM notices INDEXED BY notices_waiting WHERE status = 'waiting'
    UNION ALL
    SELECT (SELECT min(target) FROM notices INDEXED BY notices_waiting
            WHERE status = 'waiting' AND target > found.target)
    FROM found WHERE found.target IS NOT NULL
)
SELECT found.target,
       coalesce(
           (SELECT due_at FROM notices INDEXED BY notices_waiting
            WHERE status = 'waiting' AND target = found.target AND claimed_until <= ?1 ORDER BY due_at LIMIT 1),
           (SELECT min(claimed_until) FROM notices INDEXED BY notices_waiting
            WHERE status = 'waiting' AND target = found.target)
       ),
       failures, since, retry_at, reason
FROM found LEFT JOIN notice_targets t ON t.target = found.target WHERE found.target IS NOT NULL

-- name: put_target_pause
INSERT INTO notice_targets VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET failures = excluded.failures, since = excluded.since, retry_at = excluded.retry_at,
                          reason = excluded.reason

-- name: end_target_pause
DELETE FROM notice_targets WHERE target = ?

-- name: remove_target_pauses
DELETE FROM notice_targets WHERE retry_at < ?

-- name: end_all_target_pauses
DELETE FROM notice_targets

-- name: remove_notices
DELETE FROM notices WHERE status <> 'waiting' AND created_at < ?1 RETURNING 1

-- What waits is sent all the same.
-- name: remove_notices_of_run
DELETE FROM notices WHERE run_id <> 0 AND run_id = ? AND status <> 'waiting'

-- logs ---------------------------------------------------------------------------------------------------------------

-- What is stored is never replaced: of a piece that begins within it, what goes beyond its end is appended.
-- name: append_log
INSERT INTO log_chunks
SELECT ?1, ?2, ?3, ?4, max(?5, known.size), ?5 + ?6 - max(?5, known.size), ?7,
       coalesce(substr(?8, max(?5, known.size) - ?5 + 1), x'')
FROM (
    SELECT coalesce(max(start + size), 0) AS size, coalesce(max(is_last), 0) AS is_whole FROM log_chunks
    WHERE run_id = ?1 AND place = ?2 AND attempt = ?3 AND stream = ?4
) known
WHERE NOT is_whole AND ?5 <= known.size AND (?5 + ?6 > known.size OR (?7 AND ?5 + ?6 = known.size))
ON CONFLICT DO NOTHING

-- name: read_log
SELECT start, data FROM log_chunks
WHERE run_id = ?1 AND place = ?2 AND attempt = ?3 AND stream = ?4 AND start < ?6 AND start + size > ?5 ORDER BY start

-- name: log_extents
SELECT start, size, is_last FROM log_chunks
WHERE run_id = ?1 AND place = ?2 AND attempt = ?3 AND stream = ?4 ORDER BY start

-- name: logs_of
SELECT DISTINCT run_id, place, attempt, stream FROM log_chunks WHERE run_id = ?1 ORDER BY place, attempt, stream

-- name: remove_log_chunks
DELETE FROM log_chunks WHERE run_id = ?
