"""Lists of runs and of work, from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from mulligan.core.effects.run_lists import (
    Attribute,
    LeasedTask,
    OpenTasks,
    OpenTimer,
    OutcomeCount,
    RunFilter,
    attributes,
    corrected_inputs,
    input_words,
    start_words,
)
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import RunRecord
from mulligan.store.run_filters import asked_fields, is_matching
from mulligan.testing.memory.memory_tables import MemoryTables, StoredRun, StoredTask


class MemoryRunLists:
    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        asked = asked_fields(wanted)
        runs = (_SearchedRun(run, self._tables) for run in reversed(self._tables.runs.values()))
        found = (run for run in runs if (before is None or run.record.run_id < before) and is_matching(run, asked))
        return [run.record for run in islice(found, limit)]

    def records(self, run_ids: Collection[int]) -> list[RunRecord]:
        runs = self._tables.runs
        return [runs[run_id].record() for run_id in sorted(run_ids, reverse=True) if run_id in runs]

    def count(self, wanted: RunFilter, *, limit: int) -> int:
        return len(self.find(wanted, limit=limit))

    def status_counts(self, project: str | None = None) -> dict[str, int]:
        roots = (run for run in self._tables.runs.values() if run.parent_run_id is None)
        return dict(Counter(run.status for run in roots if project in (None, run.new.project)))

    def outcome_counts(self, since: datetime, until: datetime, project: str | None = None) -> list[OutcomeCount]:
        found = self.find(RunFilter(since=since, until=until, project=project), limit=len(self._tables.runs))
        counts = Counter((run.workflow, run.status, run.degraded) for run in found)
        return [OutcomeCount(*key, count) for key, count in sorted(counts.items())]

    def attributes(self, run_ids: Collection[int]) -> list[tuple[int, Attribute]]:
        runs = [run for run_id, run in sorted(self._tables.runs.items()) if run_id in run_ids]
        return [(run.run_id, one) for run in runs if run.parent_run_id is None for one in sorted(_attributes(run))]

    def rows(self, run_ids: Collection[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        return [
            (run_id, key, data)
            for run_id in run_ids
            if run_id in self._tables.runs
            for (_, key), (_, data) in islice(_rows(self._tables.runs[run_id], kind), limit)
        ]

    def places(self, keys: Collection[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        rows = {run_id: self._tables.runs[run_id].rows for run_id, _ in keys if run_id in self._tables.runs}
        return [
            (run_id, key, rows[run_id]["places", key][1]) for run_id, key in keys if ("places", key) in rows[run_id]
        ]

    def open_tasks(self, root_run_ids: Collection[int]) -> list[OpenTasks]:
        def group(kept: StoredTask) -> tuple[int, str, str]:
            guard = kept.task.guard
            return self._tables.run(kept.task.run_id).root_run_id, kept.worker, guard.name if guard else ""

        tasks = [kept for kept in self._tables.tasks.values() if self._is_open(kept.task.run_id, root_run_ids)]
        found = []
        for (root, worker, breaker), some in groupby(sorted(tasks, key=group), key=group):
            group_ = list(some)
            first = min(group_, key=lambda kept: kept.number).task
            found.append(OpenTasks(root, first.run_id, first.place, first.attempt, worker, breaker, len(group_)))
        return found

    def open_timers(self, root_run_ids: Collection[int]) -> list[OpenTimer]:
        timers = sorted(
            (self._tables.run(run_id).root_run_id, kind, due, run_id, place)
            for (run_id, kind, place, _), due in self._tables.timers.items()
            if self._is_open(run_id, root_run_ids) and self._lets_go_on(run_id, kind, place)
        )
        found = []
        for (root, kind), some in groupby(timers, key=lambda timer: timer[:2]):
            (_, _, due, run_id, place), *others = some
            found.append(OpenTimer(root, run_id, kind, place, due, 1 + len(others)))
        return found

    def _lets_go_on(self, run_id: int, kind: str, place: str) -> bool:
        """Whether a timer lets a place continue. An attempt's timer does so for a wait, not for a limit."""
        if kind != "attempt":
            return kind in ("retry", "until", "loop")
        has_task = any(key[:2] == (run_id, place) for key in self._tables.tasks)
        has_child = any(child.new.parent_place == place for child in self._tables.children(run_id))
        tag, _ = self._tables.run(run_id).rows.get(("places", place), ("", b""))
        return not (has_task or has_child or tag)

    def _is_open(self, run_id: int, root_run_ids: Collection[int]) -> bool:
        run = self._tables.run(run_id)
        return run.root_run_id in root_run_ids and run.status not in RUN_ENDED

    def leased_tasks(self) -> list[LeasedTask]:
        kept = sorted((kept for kept in self._tables.tasks.values() if kept.worker), key=lambda one: one.number)
        return [_leased(one, self._tables.run(one.task.run_id)) for one in sorted(kept, key=lambda one: one.worker)]

    def holders(self) -> list[tuple[str, int, int]]:
        held = [run for run in self._tables.runs.values() if run.holder]
        groups = {name: [run.run_id for run in held if run.holder == name] for name in {run.holder for run in held}}
        return [(name, len(run_ids), min(run_ids)) for name, run_ids in sorted(groups.items())]


class _SearchedRun:
    """What a run is found by, worked out if a filter asks for it."""

    def __init__(self, run: StoredRun, tables: MemoryTables) -> None:
        self._run, self._tables = run, tables
        self.record = run.record()

    @property
    def _root(self) -> StoredRun:
        return self._tables.run(self._run.root_run_id)

    @property
    def attributes(self) -> Collection[Attribute]:
        return _attributes(self._root)

    @property
    def failure_codes(self) -> Collection[str]:
        return self._run.failures.codes

    @property
    def words(self) -> Collection[str]:
        root, request = self._root, self._root.new.request
        started = start_words(root.new.name, request.by, request.labels)
        return f"{started} {input_words(_inputs(root))} {root.failures.words}".split()


def _attributes(run: StoredRun) -> list[Attribute]:
    return attributes(_inputs(run), run.new.request.labels)


def _inputs(run: StoredRun) -> dict[str, Any]:
    corrected = corrected_inputs(run.log)
    return run.new.request.inputs if corrected is None else corrected


def _rows(run: StoredRun, kind: str) -> Iterator[tuple[tuple[str, str], tuple[str, bytes]]]:
    return (row for row in sorted(run.rows.items()) if row[0][0] == kind)


def _leased(kept: StoredTask, run: StoredRun) -> LeasedTask:
    task, (cpus, memory, gpus, _) = kept.task, kept.needs
    return LeasedTask(
        kept.worker, task.run_id, run.new.name, task.place, task.attempt, cpus, memory, gpus, kept.leased_at
    )
