"""The statements that write a batch of commits on PostgreSQL: a handful, each with the rows of all commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from mulligan.core.effects.run_lists import RunFailures, attributes, corrected_inputs, input_words
from mulligan.core.effects.tasks import Task
from mulligan.core.model.events import AttemptScheduled
from mulligan.ports import ANSWERS_BEHIND_MAX, Commit, CommitResult, Lease, NewRun, Turn
from mulligan.store.encoding import encoded, micros
from mulligan.store.postgres.postgres_arrays import arrays, encode, singles
from mulligan.store.postgres.postgres_pipeline import OF_ONE
from mulligan.store.run_search import creation_skew, new_entries
from mulligan.store.sql.shared_outputs import lines_and_rows
from mulligan.store.sql.sql_arrays import Bigints, Blobs, Columns, Floats, Texts
from mulligan.store.sql.sql_database import Statement
from mulligan.store.sql.sql_rows import ATTRIBUTE, MESSAGE, NOTICE, TASK_KEY, notice_row, task_columns


def of_rows(name: str, columns: Columns, rows: Sequence[Sequence[Any]], *rest: Any) -> Statement:
    """A statement with these rows and further parameters. Most commits have one turn with one task."""
    if len(rows) == 1:
        return name + OF_ONE, [*singles(columns, rows[0]), *rest]
    return name, [*arrays(columns, rows), *rest]


_RUN = (Bigints, Bigints, Texts, Bigints, Bigints, Texts, Bigints, Bigints, Bigints, Texts, Bigints)
_LEASE = (Bigints, Texts, Bigints)
_NEW_RUN = (Bigints, Texts, Texts, Bigints, Bigints, Texts, Bigints, Texts, Texts, Texts)
_TASK = (Bigints, Texts, Bigints, Texts, Floats, Bigints, Bigints, Texts, Texts, Blobs, Texts, Texts, Bigints, Floats)


def commit_statements(commits: Sequence[Commit], children: Sequence[Turn], channel: str) -> Iterator[Statement]:
    """The statements of a batch that have something to write; the checks come first."""
    # Ordered by run, so that two batches never wait for each other.
    runs = sorted((_run(commit) for commit in commits), key=lambda row: row[0])
    yield of_rows("advance_runs", _RUN, runs, len(commits))
    yield from _leases(commits)
    yield from _state(commits)
    yield from _inboxes(commits)
    yield from _tasks(commits)
    yield from _others(commits, children, channel)
    over = Bigints(commit.turn.run_id for commit in commits if commit.is_last)
    if over.values:
        yield "delete_timers", [over]
        yield "delete_tasks_of_round", [over]


def ordinary_statements(commit: Commit) -> list[Statement]:
    """The statements of one ordinary turn: those of `commit_statements`, value by value, in fewer steps.

    A turn that deletes a row is not one, whatever it is called.
    """
    if None in [row[3] for row in commit.rows]:
        return list(commit_statements([commit], (), ""))
    run_id, holder, entries = commit.turn.run_id, commit.turn.holder, commit.entries
    asked: list[Statement] = [(f"advance_runs{OF_ONE}", [*singles(_RUN, _run(commit)), 1])]
    if commit.ended:
        asked.append(
            of_rows("end_leases", _LEASE, [(token, holder, run_id) for token in commit.ended], len(commit.ended))
        )
    count = len(entries)
    first = commit.after + 1
    lines, changed = lines_and_rows(commit)
    events = [
        encode(Bigints, [run_id] * count),
        encode(Bigints, range(first, first + count)),
        encode(Blobs, lines),
    ]
    asked.append(("insert_events", events))
    kinds, keys, tags, data = zip(*changed, strict=True)
    rows = [
        encode(Bigints, [run_id] * len(kinds)),
        *map(encode, (Texts, Texts, Texts, Blobs), (kinds, keys, tags, data)),
    ]
    asked.append(("put_rows", rows))
    if commit.taken:
        taken = [_task_row(task, holder) for task in commit.taken]
        asked.append(of_rows("take_tasks", _TASK, taken, len(taken)))
    return asked


def _run(commit: Commit) -> tuple[Any, ...]:
    turn = commit.turn
    seq = commit.entries[-1].seq if commit.entries else commit.after
    return (
        *(turn.run_id, turn.fence, turn.holder, commit.after, seq, commit.status, commit.round),
        *(micros(commit.at), commit.degraded, commit.reason, commit.is_last),
    )


def _leases(commits: Sequence[Commit]) -> Iterator[Statement]:
    ended = [(token, commit.turn.holder, commit.turn.run_id) for commit in commits for token in commit.ended]
    if ended:
        yield of_rows("end_leases", _LEASE, ended, len(ended))


def _state(commits: Sequence[Commit]) -> Iterator[Statement]:
    run_ids: list[int] = []
    seqs: list[int] = []
    lines: list[bytes] = []
    # A statement may write a row only once: the last one wins.
    rows: dict[tuple[int, str, str], tuple[str, bytes | None]] = {}
    for commit in commits:
        run_id = commit.turn.run_id
        run_ids += [run_id] * len(commit.entries)
        seqs += [entry.seq for entry in commit.entries]
        written, changed = lines_and_rows(commit)
        lines += written
        rows.update({(run_id, *row[:2]): row[2:] for row in changed})
    if lines:
        yield "insert_events", [encode(Bigints, run_ids), encode(Bigints, seqs), encode(Blobs, lines)]
    kept = [(*key, tag, data) for key, (tag, data) in rows.items() if data is not None]
    if kept:
        yield "put_rows", arrays((Bigints, Texts, Texts, Texts, Blobs), kept)
    gone = [key for key, (_, data) in rows.items() if data is None]
    if gone:
        yield "delete_rows", arrays((Bigints, Texts, Texts), gone)
    corrected = {
        commit.turn.run_id: found for commit in commits if (found := corrected_inputs(commit.entries)) is not None
    }
    if corrected:
        yield "remove_inputs", [Bigints(corrected)]
        inputs = [(run_id, *one) for run_id, found in corrected.items() for one in attributes(found, {})]
        yield "insert_attributes", arrays(ATTRIBUTE, inputs)
        words = [(run_id, input_words(found)) for run_id, found in corrected.items()]
        yield "set_input_words", arrays((Bigints, Texts), words)
    yield from _failures({commit.turn.run_id: commit.failures for commit in commits if commit.failures is not None})
    timers = {
        (commit.turn.run_id, timer.kind, timer.place, timer.number): micros(timer.due)
        for commit in commits
        for timer in commit.timers
    }
    notices = [notice_row(notice) for commit in commits for notice in commit.notices]
    if notices:
        yield "insert_notices", arrays(NOTICE, notices)
    if timers:
        rows_of_timers = [(*key, due) for key, due in timers.items()]
        yield "set_timers", arrays((Bigints, Texts, Texts, Bigints, Bigints), rows_of_timers)


def _failures(failures: Mapping[int, RunFailures]) -> Iterator[Statement]:
    """Replace the failures that these runs are found by."""
    if not failures:
        return
    yield "remove_failures", [Bigints(failures)]
    codes = [(run_id, "failure", code, "") for run_id, found in failures.items() for code in found.codes]
    if codes:
        yield "insert_attributes", arrays(ATTRIBUTE, codes)
    yield "set_failure_words", arrays((Bigints, Texts), [(run_id, found.words) for run_id, found in failures.items()])


def _inboxes(commits: Sequence[Commit]) -> Iterator[Statement]:
    drained = [one for commit in commits for one in commit.drained]
    if drained:
        yield "drain", [Bigints(message_id for message_id, _ in drained)]
    answers = [(message_id, encoded(answer)) for message_id, answer in drained if answer is not None]
    if answers:
        yield "insert_answers", arrays((Bigints, Blobs), answers)
        yield "forget_answers", [answers[-1][0] - ANSWERS_BEHIND_MAX]


# -- tasks -----------------------------------------------------------------------------------------------------------


def _tasks(commits: Sequence[Commit]) -> Iterator[Statement]:
    taken = [_task_row(task, commit.turn.holder) for commit in commits for task in commit.taken]
    if taken:
        yield of_rows("take_tasks", _TASK, taken, len(taken))
    # A task that this turn has scheduled cannot have had a worker before.
    older = [(task.run_id, task.place, task.attempt) for commit in commits for task in _queued_before(commit)]
    if older:
        yield "expect_free", arrays(TASK_KEY, older)
    queued = [_task_row(task, "") for commit in commits for task in commit.queued]
    if queued:
        yield of_rows("queue_tasks", _TASK, queued)


def _queued_before(commit: Commit) -> Iterator[Task]:
    """The taken tasks that an earlier turn has queued."""
    fresh = {
        (entry.fact.place, entry.fact.attempt) for entry in commit.entries if isinstance(entry.fact, AttemptScheduled)
    }
    return (task for task in commit.taken if (task.place, task.attempt) not in fresh)


def _task_row(task: Task, worker: str) -> tuple[Any, ...]:
    return task.run_id, task.place, task.attempt, worker, *task_columns(task)


# -- others ----------------------------------------------------------------------------------------------------------


def _others(commits: Sequence[Commit], children: Sequence[Turn], channel: str) -> Iterator[Statement]:
    stops = {
        (commit.turn.run_id, stop.place, stop.attempt): stop.grace_seconds
        for commit in commits
        for stop in commit.stopped
    }
    if stops:
        # In this order: a task that is leased between the two statements is found by the second.
        yield "delete_queued", arrays(TASK_KEY, stops)
        rows = [(*task_key, grace) for task_key, grace in stops.items()]
        yield "stop_leased", [*arrays((*TASK_KEY, Floats), rows), channel]
    if children:
        new = [(child, commit.turn.run_id) for commit in commits for child in commit.children]
        yield from insert_run_statements([run for run, _ in new], children, [parent for _, parent in new])
    messages = [(run_id, encoded(report), "", 0) for commit in commits for run_id, report in commit.outgoing]
    if messages:
        yield "insert_messages", arrays(MESSAGE, messages)
    for commit in commits:
        for to in commit.child_reports:
            about = {"place": to.place, "attempt": to.attempt, "parent": commit.turn.run_id}
            yield "insert_child_messages", {**about, "report": encoded(to.report), "channel": channel}


def insert_run_statements(
    runs: Sequence[NewRun], turns: Sequence[Turn], parents: Sequence[int | None]
) -> Iterator[Statement]:
    """Insert new runs under the ids of their turns, with their requests in their inboxes."""
    keys = [(run.key, turn.run_id) for run, turn in zip(runs, turns, strict=True) if run.key]
    if keys:
        yield "insert_starts", [*arrays((Texts, Bigints), keys), len(keys)]
    both = list(zip(runs, turns, parents, strict=True))
    definitions = {(run.version, run.project, parent): run.workflow for run, _, parent in both}
    rows = [(*key, body) for key, body in definitions.items()]
    yield "insert_workflows", arrays((Texts, Texts, Bigints, Blobs), rows)
    earliest, among = creation_skew(runs)
    yield "widen_skew", {"at": earliest, "among": among}
    yield "insert_runs", arrays(_NEW_RUN, [_new_run(run, turn, parent) for run, turn, parent in both])
    listed = [(turn.run_id, new_entries(run)) for run, turn, parent in both if parent is None]
    found = [(run_id, *one) for run_id, entries in listed for one in entries.attributes]
    if found:
        yield "insert_attributes", arrays(ATTRIBUTE, found)
    if listed:
        words = [(run_id, entries.words, entries.input_words) for run_id, entries in listed]
        yield "insert_words", arrays((Bigints, Texts, Texts), words)
    requests = [(turn.run_id, encoded(replace(run.request, run_id=turn.run_id)), "", 0) for run, turn, _ in both]
    yield "insert_messages", arrays(MESSAGE, requests)


def _new_run(run: NewRun, turn: Turn, parent: int | None) -> tuple[Any, ...]:
    return (
        *(turn.run_id, run.name, run.version, micros(run.request.at)),
        *(parent, run.parent_place, run.parent_attempt, turn.holder, run.request.by, run.project),
    )


def commit_notices(commits: Sequence[Commit], channel: str, ends_channel: str) -> Iterator[Statement]:
    """Notify workers that wait for tasks, the holders of runs with new messages, and who waits for the end of a run."""
    ended = [str(commit.turn.run_id) for commit in commits if commit.is_last]
    if ended:
        yield "notify", [ends_channel, Texts(ended)]
    runs = {commit.turn.run_id for commit in commits if commit.queued}
    runs.update(run_id for commit in commits for run_id, _ in commit.outgoing)
    if runs:
        yield "notify", [channel, Texts(map(str, sorted(runs)))]


def commit_results(
    commits: Sequence[Commit], numbers: Iterable[Sequence[Any]], children: Sequence[Turn]
) -> list[CommitResult]:
    """The results of the batch: leases with the sequence numbers of the server, and the turns of child runs."""
    tokens = {(run_id, place, attempt): number for run_id, place, attempt, number in numbers}
    turns = iter(children)
    return [
        CommitResult(
            [Lease(t, commit.turn.holder, tokens[t.run_id, t.place, t.attempt]) for t in commit.taken],
            [next(turns) for _ in commit.children],
        )
        for commit in commits
    ]
