"""Writes the commits of a batch on SQLite, inside one transaction; the checks come first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw
from msgspec.structs import replace

from mulligan.core.effects.run_lists import RunFailures, attributes, corrected_inputs, input_words
from mulligan.core.effects.tasks import Task
from mulligan.ports import ANSWERS_BEHIND_MAX, Commit, CommitResult, Lease, NewRun, Turn
from mulligan.store import refusals
from mulligan.store.encoding import encoded, micros
from mulligan.store.run_search import NewEntries, creation_skew, new_entries
from mulligan.store.sql.shared_outputs import lines_and_rows
from mulligan.store.sql.sql_rows import notice_row, task_columns
from mulligan.store.sqlite.sqlite_file import SQL, fetch_all, iterate
from mulligan.store.sqlite.sqlite_sequence import TaskSequence, next_numbers

TaskKey = tuple[int, str, int]


class Leases:
    """The tasks of the leases of this process. Finding them by their key makes an index in the file unnecessary."""

    def __init__(self) -> None:
        self._tasks: dict[int, TaskKey] = {}

    def keep(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._tasks[lease.token] = (lease.task.run_id, lease.task.place, lease.task.attempt)

    def drop(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self._tasks.pop(token, None)

    def find(self, db: apsw.Cursor, token: int) -> TaskKey | None:
        """The task of a lease, even if another process has it. A void lease may be found too."""
        return self._tasks.get(token) or next(iterate(db, SQL["find_lease"], token), None)


# The kind of the state's row that is stored in the run's own row, which saves writing a page with each turn.
_RUN = "run"

# How many ids there are from one transfer of words to the full-text index to the next. A search reads these runs.
_NEW_WORDS_MAX = 256


def write_batch(db: apsw.Cursor, commits: Sequence[Commit], sequence: TaskSequence, held: Leases) -> list[CommitResult]:
    """Write all commits, or raise `Conflict`: the caller rolls the transaction back."""
    refusals.check_batch(commits)
    tasks = 0
    for commit in commits:
        tasks += len(commit.taken) + len(commit.queued)
    numbers = iter(sequence.take(db, tasks))
    return [(_write_ordinary if one.is_ordinary else _write)(db, one, numbers, held) for one in commits]


def _write_ordinary(db: apsw.Cursor, commit: Commit, numbers: Iterator[int], held: Leases) -> CommitResult:
    """`_write` for a commit of nothing but ends of ordinary steps: what follows from other things is not looked for."""
    turn = commit.turn
    run_id = turn.run_id
    lines, rows = lines_and_rows(commit)
    # A turn that deletes a row is not one, whatever it is called.
    kept = [(run_id, *row) for row in rows if row[0] != _RUN and row[3] is not None]
    if len(kept) + 1 != len(rows) or rows[0][0] != _RUN:
        return _write(db, commit, numbers, held)
    about = (commit.entries[-1].seq, commit.status, commit.round, micros(commit.at), commit.degraded, commit.reason)
    db.execute(SQL["advance_run"], (*about, rows[0][3], run_id, turn.fence, turn.holder, commit.after))
    if db.connection.changes() != 1:
        _advance_run(db, commit)
    if commit.ended:
        _end_leases(db, commit, held)
    first_id = run_id << 32
    both = zip(commit.entries, lines, strict=True)
    db.executemany(SQL["insert_event"], [(first_id + entry.seq, line) for entry, line in both])
    db.executemany(SQL["put_row"], kept)
    return CommitResult(_take(db, commit, numbers) if commit.taken else (), ())


def _write(db: apsw.Cursor, commit: Commit, numbers: Iterator[int], held: Leases) -> CommitResult:
    _advance_run(db, commit)
    if commit.ended:
        _end_leases(db, commit, held)
    _write_rows(db, commit)
    inputs = corrected_inputs(commit.entries)
    if inputs is not None:
        _write_inputs(db, commit.turn.run_id, inputs)
    if commit.failures is not None:
        _write_failures(db, commit.turn.run_id, commit.failures)
    if commit.drained:
        _drain(db, commit)
    leases = _take(db, commit, numbers) if commit.taken else ()
    if commit.queued:
        rows = [_task_row(task, next(numbers), "") for task in commit.queued]
        db.executemany(SQL["queue_task"], rows)
    if commit.stopped:
        _stop(db, commit)
    if commit.timers:
        run_id = commit.turn.run_id
        timers = [(run_id, timer.kind, timer.place, timer.number, micros(timer.due)) for timer in commit.timers]
        db.executemany(SQL["set_timer"], timers)
    if commit.notices:
        db.executemany(SQL["insert_notices"], map(notice_row, commit.notices)).fetchall()
    children = _start_children(db, commit) if commit.children else ()
    if commit.outgoing or commit.child_reports:
        _add_messages(db, commit)
    if commit.is_last:
        _end_round(db, commit.turn)
    return CommitResult(leases, children)


def _advance_run(db: apsw.Cursor, commit: Commit) -> None:
    """Advance the run, if the holder still has the turn and knows the whole log (the fence)."""
    turn = commit.turn
    seq = commit.entries[-1].seq if commit.entries else commit.after
    state = None
    for kind, _, _, data in commit.rows:
        if kind == _RUN:
            state = data
            break
    about = (seq, commit.status, commit.round, micros(commit.at), commit.degraded, commit.reason, state)
    task_key = (turn.run_id, turn.fence, turn.holder, commit.after)
    for statement in ("advance_run", "advance_run_to_status"):
        db.execute(SQL[statement], (*about, *task_key))
        if db.connection.changes() == 1:
            return
    raise refusals.void_turn(commit)


def _end_leases(db: apsw.Cursor, commit: Commit, held: Leases) -> None:
    """End leases of this run that belong to the holder of its turn."""
    turn = commit.turn
    for token in commit.ended:
        task_key = held.find(db, token)
        if task_key is None or task_key[0] != turn.run_id:
            raise refusals.void_lease(commit)
        db.execute(SQL["end_own_lease"], (*task_key, token, turn.holder))
        if db.connection.changes() != 1:
            raise refusals.void_lease(commit)


def _write_rows(db: apsw.Cursor, commit: Commit) -> None:
    run_id = commit.turn.run_id
    first_id = run_id << 32
    lines, rows = lines_and_rows(commit)
    both = zip(commit.entries, lines, strict=True)
    db.executemany(SQL["insert_event"], [(first_id + entry.seq, line) for entry, line in both])
    kept, gone = [], []
    for kind, key, tag, data in rows:
        if data is None:
            gone.append((run_id, kind, key))
        elif kind != _RUN:
            kept.append((run_id, kind, key, tag, data))
    db.executemany(SQL["put_row"], kept)
    if gone:
        db.executemany(SQL["delete_row"], gone)


def _write_inputs(db: apsw.Cursor, run_id: int, inputs: dict[str, Any]) -> None:
    """Replace the searchable inputs: a corrected file has other ones."""
    db.execute(SQL["remove_inputs"], (run_id,))
    db.executemany(SQL["insert_attributes"], [(run_id, *one) for one in attributes(inputs, {})])
    _set_words(db, ("set_new_input_words", "set_input_words"), run_id, input_words(inputs))


def _write_failures(db: apsw.Cursor, run_id: int, failures: RunFailures) -> None:
    """Replace the failures that the run is found by."""
    db.execute(SQL["remove_failures"], (run_id,))
    db.executemany(SQL["insert_attributes"], [(run_id, "failure", code, "") for code in failures.codes])
    _set_words(db, ("set_new_failure_words", "set_failure_words"), run_id, failures.words)


def _set_words(db: apsw.Cursor, statements: Iterable[str], run_id: int, words: str) -> None:
    """Replace words of a run with the first statement that finds them. A child run has none."""
    for statement in statements:
        db.execute(SQL[statement], (run_id, words))
        if db.connection.changes() == 1:
            return


def _drain(db: apsw.Cursor, commit: Commit) -> None:
    db.executemany(SQL["drain"], [(message_id,) for message_id, _ in commit.drained])
    answers = [(message_id, encoded(answer)) for message_id, answer in commit.drained if answer is not None]
    db.executemany(SQL["insert_answer"], answers)
    if answers:
        db.execute(SQL["forget_answers"], (answers[-1][0] - ANSWERS_BEHIND_MAX,))


# -- tasks -----------------------------------------------------------------------------------------------------------


def _take(db: apsw.Cursor, commit: Commit, numbers: Iterator[int]) -> Sequence[Lease]:
    worker, at = commit.turn.holder, micros(commit.at)
    leases = []
    for task in commit.taken:
        lease = Lease(task, worker, next(numbers))
        db.execute(SQL["take_task"], (*_task_row(task, lease.token, worker), at))
        if db.connection.changes() != 1:
            raise refusals.not_free(task)
        leases.append(lease)
    return leases


def _task_row(task: Task, number: int, worker: str) -> tuple[object, ...]:
    return task.run_id, task.place, task.attempt, number, worker, *task_columns(task)


def _stop(db: apsw.Cursor, commit: Commit) -> None:
    keys = [(stop.grace_seconds, commit.turn.run_id, stop.place, stop.attempt) for stop in commit.stopped]
    db.executemany(SQL["delete_queued"], [key[1:] for key in keys])
    db.executemany(SQL["stop_leased"], keys)


# -- other runs ------------------------------------------------------------------------------------------------------


def _start_children(db: apsw.Cursor, commit: Commit) -> Sequence[Turn]:
    turn = commit.turn
    ((root, project),) = fetch_all(db, SQL["root"], turn.run_id)
    children = [replace(child, project=project) for child in commit.children] if project else commit.children
    return insert_runs(db, children, turn.holder, turn.run_id, root)


def insert_runs(
    db: apsw.Cursor, runs: Sequence[NewRun], holder: str, parent: int | None = None, root: int | None = None
) -> list[Turn]:
    """Insert new runs with their requests in their inboxes, below `parent` if there is one."""
    run_ids = next_numbers(db, "run", len(runs))
    fence = 1 if holder else 0
    pairs = list(zip(run_ids, runs, strict=True))
    definitions = {(run.version, run.project): run.workflow for run in runs}
    db.executemany(SQL["insert_workflow"], [(*key, body) for key, body in definitions.items()])
    if runs:
        db.execute(SQL["widen_skew"], creation_skew(runs))
    db.executemany(SQL["insert_run"], [_run_row(run_id, run, parent, root, holder, fence) for run_id, run in pairs])
    for run_id, run in pairs:
        _note_key(db, run.key, run_id)
    if parent is None:
        _insert_entries(db, [(run_id, new_entries(run)) for run_id, run in pairs])
    requests = [(run_id, encoded(replace(run.request, run_id=run_id)), "", 0) for run_id, run in pairs]
    db.executemany(SQL["insert_message"], requests)
    return [Turn(run_id, holder, fence) for run_id in run_ids]


def _insert_entries(db: apsw.Cursor, entries: Sequence[tuple[int, NewEntries]]) -> None:
    """Insert what new runs are found by. Their words go to the index together with those of many other runs."""
    db.executemany(SQL["insert_attributes"], [(run_id, *one) for run_id, found in entries for one in found.attributes])
    db.executemany(SQL["insert_words"], [(run_id, found.words, found.input_words) for run_id, found in entries])
    ids = [run_id for run_id, _ in entries]
    if ids and ids[-1] // _NEW_WORDS_MAX > (ids[0] - 1) // _NEW_WORDS_MAX:
        db.execute(SQL["index_words"])
        db.execute(SQL["remove_indexed_words"])


def _note_key(db: apsw.Cursor, key: str, run_id: int) -> None:
    if not key:
        return
    # All rows, of which there is at most one: a statement that is left open outlives the rollback, as a reader.
    found = fetch_all(db, SQL["started"], key)
    if found:
        raise refusals.key_used(key, found[0][0])
    db.execute(SQL["insert_start"], (key, run_id))


def _run_row(
    run_id: int, run: NewRun, parent: int | None, root: int | None, holder: str, fence: int
) -> tuple[object, ...]:
    at = micros(run.request.at)
    return (
        *(run_id, run.name, run.version, at, at),
        *(parent, run.parent_place, run.parent_attempt, run_id if root is None else root),
        *(holder, fence, run.request.by, run.project),
    )


def _add_messages(db: apsw.Cursor, commit: Commit) -> None:
    for run_id, report in commit.outgoing:
        # Does nothing if the run was removed.
        fetch_all(db, SQL["put"], run_id, encoded(report), 0)
    for sent in commit.child_reports:
        db.execute(SQL["insert_child_messages"], (commit.turn.run_id, encoded(sent.report), sent.place, sent.attempt))


def _end_round(db: apsw.Cursor, turn: Turn) -> None:
    db.execute(SQL["delete_timers"], (turn.run_id,))
    db.execute(SQL["delete_tasks_of_round"], (turn.run_id,))
    db.execute(SQL["release"], (turn.run_id, turn.fence, turn.holder))
