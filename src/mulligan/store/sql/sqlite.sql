-- Every statement of the SQLite store, by name.

-- name: next_numbers
UPDATE counters SET value = value + ?2 WHERE name = ?1 RETURNING value

-- name: last_number
SELECT value FROM counters WHERE name = ?

-- name: skip_numbers
UPDATE counters SET value = max(value, ?2) WHERE name = ?1

-- workers ------------------------------------------------------------------------------------------------------------

-- name: is_registered
SELECT 1 FROM workers WHERE name = ?

-- runs ---------------------------------------------------------------------------------------------------------------

-- A definition belongs to one project: nobody stores what another project runs.
-- name: insert_workflow
INSERT OR IGNORE INTO workflows (version, body) VALUES (iif(?2 = '', ?1, '@' || ?2 || '/' || ?1), ?3)

-- name: insert_start
INSERT INTO starts VALUES (?, ?)

-- name: started
SELECT run_id FROM starts WHERE key = ?

-- name: keys_ending_with
SELECT key, run_id FROM starts WHERE substr(key, -length(?1)) = ?1 ORDER BY run_id

-- name: check_schema
SELECT checked FROM schema_needed

-- name: insert_run
INSERT INTO runs VALUES (?, ?, ?, 'running', 1, 0, ?, ?, 0, '', ?, ?, ?, ?, ?, ?, NULL, ?, ?)

-- The words of a run are in `new_words`, until they are moved to the full-text index `run_words`.
-- name: insert_words
INSERT INTO new_words VALUES (?, ?, ?, '')

-- name: index_words
INSERT INTO run_words (rowid, started, inputs, failed) SELECT * FROM new_words ORDER BY run_id

-- name: remove_indexed_words
DELETE FROM new_words

-- name: set_new_input_words
UPDATE new_words SET inputs = ?2 WHERE run_id = ?1

-- name: set_input_words
UPDATE run_words SET inputs = ?2 WHERE rowid = ?1

-- name: set_new_failure_words
UPDATE new_words SET failed = ?2 WHERE run_id = ?1

-- name: set_failure_words
UPDATE run_words SET failed = ?2 WHERE rowid = ?1

-- How far the order of creation times and that of ids differ at most: ?1 is the earliest time of new runs, ?2 how far
-- they differ among themselves. Nearly always nothing changes.
-- name: widen_skew
UPDATE counters SET value = max(?2, coalesce((SELECT max(created_at) FROM runs) - ?1, 0))
WHERE name = 'skew' AND value < max(?2, coalesce((SELECT max(created_at) FROM runs) - ?1, 0))

-- name: root
SELECT root_run_id, project FROM runs WHERE run_id = ?

-- Of the run's own project. One that an older version stored is there for all projects.
-- name: workflows
SELECT w.version, w.body FROM runs r CROSS JOIN workflows w ON w.version IN (r.version, '@' || r.project || '/' || r.version)
WHERE r.run_id = ?

-- name: rows
SELECT run_id, kind, key, tag, data FROM rows WHERE run_id = ?1
UNION ALL SELECT run_id, 'run', '', '', state FROM runs WHERE run_id = ?1 AND state IS NOT NULL
ORDER BY kind, key

-- name: log
SELECT entry FROM events WHERE id > (?1 << 32) + max(?2, 0) AND id < (?1 + 1) << 32 ORDER BY id LIMIT ?3

-- Of any logs, each named by one number: that of the run, and its own in the lower 32 bits.
-- name: entries
SELECT e.id, e.entry FROM json_each(?1) wanted CROSS JOIN events e ON e.id = wanted.value

-- name: search_log
SELECT entry FROM events
WHERE id > (?1 << 32) + max(?2, 0) AND id < (?1 + 1) << 32
  AND (instr(entry, ?3) OR instr(entry, ?4)) AND instr(entry, ?5)
ORDER BY id

-- Run by run, using the key of the rows: an index by kind would cost every commit a page.
-- name: tallies
SELECT r.run_id, r.workflow, r.version, s.key, s.data
FROM runs r CROSS JOIN rows s ON s.run_id = r.run_id AND s.kind = 'tallies'
WHERE (:workflow IS NULL OR r.workflow = :workflow) AND (:since IS NULL OR r.created_at >= :since)
      AND (:project IS NULL OR r.project = :project)
ORDER BY r.run_id DESC, s.key

-- name: records_containing
SELECT id >> 32, entry FROM events WHERE instr(entry, :text)
UNION ALL SELECT run_id, report FROM messages WHERE instr(report, :text)
UNION ALL SELECT run_id, task FROM tasks WHERE instr(task, :text)

-- name: remove_events
DELETE FROM events WHERE id IN (
    SELECT e.id FROM json_each(?) gone CROSS JOIN events e ON e.id >= gone.value << 32 AND e.id < (gone.value + 1) << 32
)

-- name: remove_inputs
DELETE FROM attributes WHERE run_id = ? AND kind = 'input'

-- name: remove_failures
DELETE FROM attributes WHERE run_id = ? AND kind = 'failure'

-- name: remove_words
DELETE FROM run_words WHERE rowid IN (SELECT value FROM json_each(?))

-- name: remove_new_words
DELETE FROM new_words WHERE run_id IN (SELECT value FROM json_each(?))

-- Stops at the first run that uses the workflow.
-- name: remove_workflow
DELETE FROM workflows WHERE version IN (?1, '@' || ?2 || '/' || ?1) AND NOT EXISTS (
    SELECT 1 FROM runs r NOT INDEXED
    WHERE r.version = ?1 AND (r.project = ?2 OR workflows.version = ?1)
)

-- inboxes ------------------------------------------------------------------------------------------------------------

-- name: put
INSERT INTO messages (run_id, report, is_asking, place, attempt)
SELECT run_id, ?2, ?3, '', 0 FROM runs WHERE run_id = ?1
RETURNING id

-- name: insert_message
INSERT INTO messages (run_id, report, is_asking, place, attempt) VALUES (?, ?, 0, ?, ?)

-- name: insert_child_messages
INSERT INTO messages (run_id, report, is_asking, place, attempt)
SELECT run_id, ?2, 0, '', 0 FROM runs
WHERE parent_run_id = ?1 AND status NOT IN ('completed', 'failed', 'cancelled')
      AND (?3 = '' OR (parent_place = ?3 AND parent_attempt = ?4))

-- turns --------------------------------------------------------------------------------------------------------------

-- name: take_turns
UPDATE runs SET fence = fence + (holder = ''), holder = ?1
WHERE run_id IN (SELECT value FROM json_each(?2)) AND holder IN ('', ?1)
RETURNING run_id, fence

-- name: unfinished_page
SELECT root_run_id, run_id, holder FROM runs INDEXED BY runs_unfinished
WHERE status NOT IN ('completed', 'failed', 'cancelled') AND root_run_id >= ?1 AND (root_run_id, run_id) > (?1, ?2)
ORDER BY root_run_id, run_id LIMIT ?3

-- The last condition is for runs that an interrupted process has left: nothing would ever wake them.
-- name: runs_with_work
SELECT run_id FROM runs r
WHERE run_id IN (SELECT value FROM json_each(?1)) AND (
    updated_at > ?2
    OR EXISTS (SELECT 1 FROM messages m WHERE m.run_id = r.run_id)
    OR (status <> 'paused' AND EXISTS (SELECT 1 FROM tasks t WHERE t.run_id = r.run_id AND worker = ''))
    OR NOT (
        status = 'paused'
        OR EXISTS (SELECT 1 FROM timers t WHERE t.run_id = r.run_id)
        OR EXISTS (SELECT 1 FROM tasks t WHERE t.run_id = r.run_id)
        OR EXISTS (
            SELECT 1 FROM rows s INDEXED BY rows_by_tag
            WHERE tag <> '' AND tag IN ('parked', 'approval', 'paused', 'event') AND s.run_id = r.run_id
        )
        OR EXISTS (
            SELECT 1 FROM runs c INDEXED BY runs_by_parent
            WHERE c.parent_run_id = r.run_id AND c.status NOT IN ('completed', 'failed', 'cancelled')
        )
    )
)
ORDER BY run_id

-- name: release
UPDATE runs SET holder = '' WHERE run_id = ? AND fence = ? AND holder = ?

-- Nearly always the status stays the same. Not setting it saves writing a page of the index of unfinished runs.
-- name: advance_run
UPDATE runs SET seq = ?1, round = ?3, updated_at = ?4, degraded = ?5, reason = ?6, state = coalesce(?7, state)
WHERE run_id = ?8 AND fence = ?9 AND holder = ?10 AND seq = ?11 AND status = ?2

-- name: advance_run_to_status
UPDATE runs
SET seq = ?1, status = ?2, round = ?3, updated_at = ?4, degraded = ?5, reason = ?6, state = coalesce(?7, state)
WHERE run_id = ?8 AND fence = ?9 AND holder = ?10 AND seq = ?11

-- name: insert_event
INSERT INTO events VALUES (?, ?)

-- name: put_row
INSERT INTO rows VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET tag = excluded.tag, data = excluded.data

-- name: delete_row
DELETE FROM rows WHERE run_id = ? AND kind = ? AND key = ?

-- name: drain
DELETE FROM messages WHERE id = ?

-- name: insert_answer
INSERT OR IGNORE INTO answers VALUES (?, ?)

-- name: forget_answers
DELETE FROM answers WHERE message_id < ?

-- name: set_timer
INSERT INTO timers VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET due = excluded.due

-- name: delete_timers
DELETE FROM timers WHERE run_id = ?

-- Keeps a task that was leased while the turn was decided: its worker is asked to stop it, and reports.
-- name: delete_tasks_of_round
DELETE FROM tasks WHERE run_id = ? AND NOT is_stopping

-- tasks --------------------------------------------------------------------------------------------------------------

-- name: queue_task
INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?, ?, 0, NULL, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)

-- Refuses a task that had a worker, while the message about its end is not processed.
-- name: take_task
INSERT INTO tasks (run_id, place, attempt, ticket, worker, is_stopping, grace_seconds, cpus, memory, gpus, labels, host,
                   task, breaker, when_open, nodes, timeout, leased_at)
SELECT ?1, ?2, ?3, ?4, ?5, 0, NULL, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16
WHERE NOT EXISTS (SELECT 1 FROM messages WHERE run_id = ?1 AND place = ?2 AND attempt = ?3)
ON CONFLICT DO UPDATE SET ticket = excluded.ticket, worker = excluded.worker, leased_at = excluded.leased_at
WHERE worker = ''

-- name: find_lease
SELECT run_id, place, attempt FROM tasks WHERE ticket = ? AND worker <> ''

-- name: end_lease
DELETE FROM tasks WHERE run_id = ? AND place = ? AND attempt = ? AND ticket = ? AND worker <> '' RETURNING 1

-- name: end_own_lease
DELETE FROM tasks WHERE run_id = ? AND place = ? AND attempt = ? AND ticket = ? AND worker = ?

-- name: delete_queued
DELETE FROM tasks WHERE run_id = ? AND place = ? AND attempt = ? AND worker = ''

-- name: stop_leased
UPDATE tasks SET is_stopping = 1, grace_seconds = ? WHERE run_id = ? AND place = ? AND attempt = ?

-- The newest free task, and the newest that is asked to stop.
-- name: queue_mark
SELECT (SELECT max(ticket) FROM tasks INDEXED BY tasks_free WHERE worker = ''),
       (SELECT max(ticket) FROM tasks INDEXED BY tasks_stopping WHERE is_stopping)

-- name: free_tasks
SELECT t.task, t.cpus, t.memory, t.gpus, t.nodes
FROM tasks t INDEXED BY tasks_free JOIN runs r USING (run_id)
WHERE t.worker = '' AND t.cpus <= ?1 AND t.memory <= ?2 AND t.gpus <= ?3
      AND NOT EXISTS (
          SELECT 1 FROM json_each(t.labels) WHERE value NOT IN (SELECT value FROM json_each(?4))
      )
      AND (t.host IN ('', ?5) OR t.host NOT IN (SELECT host FROM workers))
      AND r.status <> 'paused' AND (?6 IS NULL OR r.root_run_id = ?6) AND (?8 IS NULL OR r.project = ?8)
      AND t.breaker NOT IN (SELECT name FROM admitting_nobody)
      AND (t.when_open = 'fail' OR t.breaker NOT IN (
          SELECT name FROM breakers WHERE status = 'open' AND retry_at > ?7
      ))
ORDER BY t.ticket

-- The same, only for guarded tasks of our own runs: there may be a hundred thousand others.
-- name: guarded_tasks
SELECT t.task, t.cpus, t.memory, t.gpus, t.nodes
FROM tasks t INDEXED BY tasks_guarded JOIN runs r USING (run_id)
WHERE t.breaker <> '' AND r.holder = ?8 AND t.worker = '' AND t.cpus <= ?1 AND t.memory <= ?2 AND t.gpus <= ?3
      AND NOT EXISTS (
          SELECT 1 FROM json_each(t.labels) WHERE value NOT IN (SELECT value FROM json_each(?4))
      )
      AND (t.host IN ('', ?5) OR t.host NOT IN (SELECT host FROM workers))
      AND r.status <> 'paused' AND (?6 IS NULL OR r.root_run_id = ?6)
      AND t.breaker NOT IN (SELECT name FROM admitting_nobody)
      AND (t.when_open = 'fail' OR t.breaker NOT IN (
          SELECT name FROM breakers WHERE status = 'open' AND retry_at > ?7
      ))
ORDER BY t.ticket

-- Whether the timer of a run is due later than it was when a task was queued: a pause has moved it.
-- name: run_has_time_left
SELECT 1 FROM timers WHERE run_id = ? AND kind = 'run' AND due > ?

-- name: lease_task
UPDATE tasks SET worker = ?, ticket = ?, leased_at = ? WHERE run_id = ? AND place = ? AND attempt = ?

-- lists --------------------------------------------------------------------------------------------------------------

-- Candidates, the newest first, with ids below :before and above :after. `sql_lists` chooses the shortest list.
-- name: candidates_by_status
SELECT run_id FROM runs INDEXED BY runs_by_status
WHERE parent_run_id IS NULL AND project = :project AND status = :value AND run_id < :before AND run_id > :after
ORDER BY run_id DESC LIMIT :limit

-- name: candidates_by_workflow
SELECT run_id FROM runs INDEXED BY runs_by_workflow
WHERE parent_run_id IS NULL AND workflow = :value AND run_id < :before AND run_id > :after
ORDER BY run_id DESC LIMIT :limit

-- name: candidates_by_starter
SELECT run_id FROM runs INDEXED BY runs_by_starter
WHERE parent_run_id IS NULL AND started_by = :value AND run_id < :before AND run_id > :after
ORDER BY run_id DESC LIMIT :limit

-- name: candidates_by_attribute
SELECT run_id FROM attributes INDEXED BY attributes_by_value
WHERE kind = :kind AND name = :named AND value = :value AND run_id < :before AND run_id > :after
ORDER BY run_id DESC LIMIT :limit

-- Of the newest runs: those with the words ?4.
-- name: candidates_by_new_words
SELECT run_id FROM new_words
WHERE run_id < ?1 AND run_id > ?2 AND NOT EXISTS (
    SELECT 1 FROM json_each(?4) asked
    WHERE NOT instr(' ' || started || ' ' || inputs || ' ' || failed, ' ' || asked.value)
)
ORDER BY run_id DESC LIMIT ?3

-- name: candidates_by_words
SELECT rowid FROM run_words WHERE run_words MATCH ?4 AND rowid < ?1 AND rowid > ?2 ORDER BY rowid DESC LIMIT ?3

-- Among the newest ?5 runs with the beginnings of the words: those with the whole words ?6.
-- name: candidates_by_words_near
SELECT rowid FROM (
    SELECT rowid, ' ' || started || ' ' || inputs || ' ' || failed AS words FROM run_words
    WHERE run_words MATCH ?4 AND rowid < ?1 AND rowid > ?2 ORDER BY rowid DESC LIMIT ?5
)
WHERE NOT EXISTS (SELECT 1 FROM json_each(?6) asked WHERE NOT instr(words, ' ' || asked.value)) LIMIT ?3

-- Between these runs are all that were created in a time, since the order of ids and of times differ by the skew.
-- name: time_bounds
WITH skew (micros) AS MATERIALIZED (SELECT value FROM counters WHERE name = 'skew')
SELECT (SELECT run_id FROM runs WHERE created_at >= :until + (SELECT micros FROM skew) ORDER BY created_at LIMIT 1),
       (SELECT run_id FROM runs WHERE created_at < :since - (SELECT micros FROM skew) ORDER BY created_at DESC LIMIT 1)

-- A child run has the attributes and the words of its root, and its own failures.
-- name: runs_with_attribute
SELECT r.run_id FROM json_each(?1) wanted CROSS JOIN runs r ON r.run_id = wanted.value
CROSS JOIN attributes a ON a.run_id = r.root_run_id AND a.kind = ?2 AND a.name = ?3 AND a.value = ?4
ORDER BY r.run_id DESC

-- The same for runs without a parent: the entries of one value stand together, those of one run are spread.
-- name: top_runs_with_attribute
SELECT a.run_id FROM json_each(?1) wanted CROSS JOIN attributes a INDEXED BY attributes_by_value
           ON a.kind = ?2 AND a.name = ?3 AND a.value = ?4 AND a.run_id = wanted.value
ORDER BY a.run_id DESC

-- name: runs_with_failure
SELECT DISTINCT a.run_id FROM json_each(?1) wanted CROSS JOIN json_each(?2) code
CROSS JOIN attributes a INDEXED BY attributes_by_value
           ON a.kind = 'failure' AND a.name = code.value AND a.value = '' AND a.run_id = wanted.value
ORDER BY a.run_id DESC

-- name: runs_with_words
SELECT r.run_id FROM json_each(?1) wanted CROSS JOIN runs r ON r.run_id = wanted.value
LEFT JOIN new_words n ON n.run_id = r.root_run_id
LEFT JOIN run_words t ON t.rowid = r.root_run_id AND n.run_id IS NULL
WHERE NOT EXISTS (
    SELECT 1 FROM json_each(?2) asked
    WHERE NOT instr(
        ' ' || coalesce(n.started || ' ' || n.inputs || ' ' || n.failed, t.started || ' ' || t.inputs || ' ' || t.failed, ''),
        ' ' || asked.value
    )
)
ORDER BY r.run_id DESC

-- name: status_counts
SELECT status, sum(counted) FROM (
    SELECT status, count(*) AS counted FROM runs INDEXED BY runs_by_status
    WHERE parent_run_id IS NULL GROUP BY project, status
) GROUP BY status

-- From one to the next, whatever number of runs each has.
-- name: projects
WITH RECURSIVE projects (project) AS (
    SELECT min(project) FROM runs INDEXED BY runs_by_status WHERE parent_run_id IS NULL
    UNION ALL
    SELECT (
        SELECT min(r.project) FROM runs r INDEXED BY runs_by_status
        WHERE r.parent_run_id IS NULL AND r.project > projects.project
    ) FROM projects WHERE project IS NOT NULL
)
SELECT project FROM projects WHERE project IS NOT NULL

-- name: rows_of_kind
SELECT s.run_id, s.key, s.data FROM json_each(?1) wanted CROSS JOIN rows s ON s.run_id = wanted.value AND s.kind = ?2
WHERE s.key IN (SELECT key FROM rows WHERE run_id = wanted.value AND kind = ?2 ORDER BY key LIMIT ?3)

-- name: places_at
SELECT s.run_id, s.key, s.data
FROM json_each(?) wanted
CROSS JOIN rows s ON s.run_id = wanted.value ->> 0 AND s.kind = 'places' AND s.key = wanted.value ->> 1

-- `min` selects the row that the other columns are taken from.
-- name: open_tasks
SELECT r.root_run_id, t.run_id, t.place, t.attempt, t.worker, t.breaker, count(*), min(t.ticket)
FROM json_each(?) wanted
CROSS JOIN runs r INDEXED BY runs_unfinished
           ON r.root_run_id = wanted.value AND r.status NOT IN ('completed', 'failed', 'cancelled')
CROSS JOIN tasks t USING (run_id)
GROUP BY r.root_run_id, t.worker, t.breaker

-- The timer of an attempt counts only for a wait: otherwise it limits a task, a child run or an approval.
-- name: open_timers
SELECT r.root_run_id, t.run_id, t.kind, t.place, min(t.due), count(*)
FROM json_each(?) wanted
CROSS JOIN runs r INDEXED BY runs_unfinished
           ON r.root_run_id = wanted.value AND r.status NOT IN ('completed', 'failed', 'cancelled')
CROSS JOIN timers t USING (run_id)
WHERE t.kind IN ('retry', 'until', 'loop') OR (
    t.kind = 'attempt'
    AND NOT EXISTS (SELECT 1 FROM tasks x WHERE x.run_id = t.run_id AND x.place = t.place)
    AND NOT EXISTS (SELECT 1 FROM runs x WHERE x.parent_run_id = t.run_id AND x.parent_place = t.place)
    AND NOT EXISTS (
        SELECT 1 FROM rows x WHERE x.run_id = t.run_id AND x.kind = 'places' AND x.key = t.place AND x.tag <> ''
    )
)
GROUP BY r.root_run_id, t.kind

-- for a migration ----------------------------------------------------------------------------------------------------

-- name: stored_runs
SELECT r.run_id, r.workflow, r.status = 'failed', r.parent_run_id IS NOT NULL,
       coalesce(
           (SELECT entry FROM events WHERE id = (r.run_id << 32) + 1),
           (SELECT report FROM messages WHERE messages.run_id = r.run_id ORDER BY id LIMIT 1)
       )
FROM runs r WHERE r.run_id > ?1 ORDER BY r.run_id LIMIT ?2

-- name: fill_starters
UPDATE runs SET started_by = ?2 WHERE run_id = ?1

-- name: fill_words
INSERT INTO run_words (rowid, started, inputs, failed) VALUES (?, ?, ?, ?)

-- breakers -----------------------------------------------------------------------------------------------------------

-- name: circuits
SELECT name, status, failures, retry_at, probe, max_running, name IN (SELECT name FROM probing),
       coalesce(behind.tasks, 0)
FROM breakers LEFT JOIN running_behind behind USING (name)

-- name: put_breakers
INSERT INTO breakers (name, status, failures, retry_at, probe, max_running) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET status = excluded.status, failures = excluded.failures, retry_at = excluded.retry_at,
                          probe = excluded.probe, max_running = excluded.max_running

-- name: reset_breaker
UPDATE breakers SET status = 'closed', failures = 0, retry_at = NULL, probe = NULL, max_running = NULL
WHERE name = ? RETURNING 1

-- time ---------------------------------------------------------------------------------------------------------------

-- Due by the clock of the caller (?1) or by the wall clock (?2), in the runs whose turn ?3 holds ('' for all).
-- name: due_timers
SELECT run_id, kind, place, number FROM timers INDEXED BY timers_by_due CROSS JOIN runs USING (run_id)
WHERE due <= max(?1, ?2) AND due <= iif(kind = 'until', ?2, ?1) AND (?3 = '' OR holder = ?3)
ORDER BY due

-- The same below one root, starting from its runs: there may be ten thousand other timers.
-- name: due_timers_below
SELECT run_id, kind, place, number FROM runs INDEXED BY runs_unfinished CROSS JOIN timers USING (run_id)
WHERE due <= iif(kind = 'until', ?2, ?1) AND (?3 = '' OR holder = ?3)
      AND root_run_id = ?4 AND status NOT IN ('completed', 'failed', 'cancelled')
ORDER BY due

-- For one run whose time is ahead of its holder's clock.
-- name: due_timers_of
SELECT run_id, kind, place, number FROM timers WHERE run_id = ? AND due <= ? AND kind <> 'until' ORDER BY due

-- name: next_timer_of
SELECT due FROM timers WHERE run_id = ? AND kind <> 'until' ORDER BY due LIMIT 1

-- name: delete_timer
DELETE FROM timers WHERE run_id = ? AND kind = ? AND place = ? AND number = ?

-- In the runs whose turn ?1 holds ('' for all); ?2: 0 for all kinds, 1 for all but "until", 2 for "until" only.
-- name: next_timer
SELECT due FROM timers INDEXED BY timers_by_due CROSS JOIN runs USING (run_id)
WHERE (?1 = '' OR holder = ?1) AND (?2 = 0 OR (kind = 'until') = (?2 = 2))
ORDER BY due LIMIT 1

-- name: next_timer_below
SELECT due FROM runs INDEXED BY runs_unfinished CROSS JOIN timers USING (run_id)
WHERE (?1 = '' OR holder = ?1) AND (?2 = 0 OR (kind = 'until') = (?2 = 2))
      AND root_run_id = ?3 AND status NOT IN ('completed', 'failed', 'cancelled')
ORDER BY due LIMIT 1

-- name: next_retry
SELECT b.retry_at FROM breakers b
WHERE b.status = 'open' AND b.retry_at > ?2 AND EXISTS (
    SELECT 1 FROM tasks t INDEXED BY tasks_guarded JOIN runs r USING (run_id)
    WHERE t.breaker <> '' AND t.breaker = b.name AND t.worker = ''
          AND r.status <> 'paused' AND (?1 IS NULL OR r.root_run_id = ?1)
)
ORDER BY b.retry_at LIMIT 1

-- workflows ----------------------------------------------------------------------------------------------------------

-- From name to name: older versions are skipped.
-- name: newest_versions
WITH RECURSIVE names (name) AS (
    SELECT min(name) FROM workflow_versions WHERE project = :project AND name > :after
    UNION ALL
    SELECT (SELECT min(v.name) FROM workflow_versions v WHERE v.project = :project AND v.name > names.name)
    FROM names WHERE name IS NOT NULL
    LIMIT :limit
)
SELECT v.project, v.name, v.number, digest, published_at, published_by, format, note, labels, x''
FROM names CROSS JOIN workflow_versions v ON v.project = :project AND v.name = names.name AND v.number = (
    SELECT max(number) FROM workflow_versions n WHERE n.project = :project AND n.name = names.name
)
ORDER BY v.name

-- retention ----------------------------------------------------------------------------------------------------------

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name

-- name: table_bytes
SELECT coalesce(s.tbl_name, d.name), sum(d.pgsize) FROM dbstat d LEFT JOIN sqlite_schema s ON s.name = d.name
WHERE d.aggregate GROUP BY 1

-- notices ------------------------------------------------------------------------------------------------------------

-- A sender that was late must not send again what another one has sent.
-- name: settle_notices
UPDATE notices SET status = ?2, attempts = ?3, due_at = ?4, reason = ?5, claimed_until = 0
WHERE id = ?1 AND status <> 'sent'

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
            WHERE status = 'waiting' AND target = found.target AND claimed_until <= :now ORDER BY due_at LIMIT 1),
           (SELECT min(claimed_until) FROM notices INDEXED BY notices_waiting
            WHERE status = 'waiting' AND target = found.target)
       ),
       failures, since, retry_at, reason
FROM found LEFT JOIN notice_targets t ON t.target = found.target WHERE found.target IS NOT NULL

-- logs ---------------------------------------------------------------------------------------------------------------

-- What is stored is never replaced: of a piece that begins within it, what goes beyond its end is appended. Each piece
-- finds the one before, so that ?9, where the first of them begins, matters only to a statement with all of them.
-- name: append_log
INSERT INTO log_chunks
SELECT ?1, ?2, ?3, ?4, max(?5, known.size), ?5 + ?6 - max(?5, known.size), ?7,
       coalesce(substr(?8, max(?5, known.size) - ?5 + 1), x'')
FROM (
    SELECT coalesce(max(start + size), 0) AS size, coalesce(max(is_last), 0) AS is_whole FROM log_chunks
    WHERE run_id = ?1 AND place = ?2 AND attempt = ?3 AND stream = ?4
) known
WHERE NOT is_whole AND ?9 <= ?5 AND ?5 <= known.size AND (?5 + ?6 > known.size OR (?7 AND ?5 + ?6 = known.size))
ON CONFLICT DO NOTHING
