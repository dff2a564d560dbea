"""What must hold when the fault is over and the run has ended: each law gives sentences that say what is wrong."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import apsw
import psycopg

from mulligan.core.model import events as e
from mulligan.service.home import DATABASE
from mulligan.service.host.gc import RunRetention
from mulligan.service.service import Service
from mulligan.worker.lock import state_of
from proof.crashes.workflow import DONE_ONCE, SECRET, done
from proof.invariants.run_invariants import check
from proof.stage import Line, Stage, outcome

# What is of no run: nothing of it may outlive the last one.
PASSING_UNASKED = ("tasks", "messages", "timers", "workers")
PASSING = (*PASSING_UNASKED, "answers")
# What a home contains when no process works there.
HOME = frozenset({".gitignore", DATABASE, "runs", "artifacts", "workers", "unshipped"})
# Files of the database while we read it.
READ = frozenset({f"{DATABASE}-wal", f"{DATABASE}-shm"})
# What is the same although something has failed that otherwise does not.
REFUSED = ("status", "outputs")
RESULTS = (e.AttemptSucceeded, e.AttemptFailed)


class TrialOutcome:
    """A stage on which everything has come to rest."""

    def __init__(
        self,
        stage: Stage,
        service: Service,
        shown: dict[str, Any],
        expected: dict[str, Any],
        *,
        is_left_to_gc: bool = False,
        done_once: Counter[tuple[str, str, int]] = DONE_ONCE,
        has_askers: bool = False,
    ) -> None:
        self.stage = stage
        self.service = service
        self.shown = shown
        self.expected = expected
        # Whether a process may have died, or been refused, in the middle of a file: gc removes what is left of it.
        self.is_left_to_gc = is_left_to_gc
        self.done_once = done_once
        # Whether others than the driver of the run asked it for changes.
        self.has_askers = has_askers

    @cached_property
    def logs(self) -> dict[int, list[e.Entry]]:
        """Of the run, and of those that it called."""
        return {run.run_id: list(self.service.reader.events(run.run_id)) for run in self.service.reader.runs(limit=100)}

    @cached_property
    def is_refused(self) -> bool:
        """Whether the disk refused something to a step, which failed with a message, and was retried."""
        facts = (entry.fact for log in self.logs.values() for entry in log)
        return self.is_left_to_gc and any(_is_refusal(fact) for fact in facts)

    @cached_property
    def lines(self) -> list[Line]:
        return self.stage.lines()

    def files(self) -> list[Path]:
        return [path for path in sorted(self.stage.home.folder.rglob("*")) if path.is_file()]


def the_outcome_is_as_undisturbed(after: TrialOutcome) -> Iterator[str]:
    found, expected = steady(after.shown), after.expected
    for name in REFUSED if after.is_refused else sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            yield f"'{name}' is {found.get(name)}, and undisturbed it is {expected.get(name)}"


def the_logs_keep_the_promises(after: TrialOutcome) -> Iterator[str]:
    for run_id, log in after.logs.items():
        try:
            check(log, after.service.reader.state(run_id))
        except AssertionError as error:
            yield f"run {run_id}: {error}"


def the_logs_replay_to_the_tables(after: TrialOutcome) -> Iterator[str]:
    for run_id in after.logs:
        differing = after.service.runs.replay(run_id).differing
        if differing:
            yield f"run {run_id}: {', '.join(differing)} are not what the log says"


def everything_was_done(after: TrialOutcome) -> Iterator[str]:
    if after.is_refused:
        return  # not what failed before it was begun
    for (name, item, visit), missing in sorted((after.done_once - done(after.stage)).items()):
        yield f"'{name}' (item {item}, visit {visit}) was done {missing} times too few"


def nothing_was_done_twice(after: TrialOutcome) -> Iterator[str]:
    """What was lost runs again as another attempt, under its own lease."""
    starts = [line for line in after.lines if line.verb == "start"]
    own = Counter((line.run_id, line.place, line.attempt) for line in starts if "@" not in line.place)
    for (run_id, place, attempt), times in own.items():
        if times > 1:
            yield f"run {run_id}: attempt {attempt} of '{place}' was started {times} times"
    for fence, times in Counter(line.fence for line in starts).items():
        if times > 1:
            yield f"lease {fence} was used {times} times"


def every_result_was_worked_for(after: TrialOutcome) -> Iterator[str]:
    """A place has no more results than it was done to the end, and was not begun more often than the log says."""
    for run_id, log in after.logs.items():
        begun, ended = (_times(after.lines, run_id, verb) for verb in ("start", "end"))
        started = Counter(fact.place for fact in _facts(log, (e.AttemptStarted,)) if fact.worker)
        results = Counter(fact.place for fact in _facts(log, RESULTS) if not _is_refusal(fact))
        # The code of a program is its own: it writes no journal.
        programs = {fact.place for fact in _facts(log, (e.ProgramWaiting, e.ProgramEnded))}
        for place in sorted({*started, *begun} - programs):
            if results[place] > ended[place]:
                yield f"run {run_id}: '{place}' has {results[place]} results, and came to its end {ended[place]} times"
            if begun[place] > started[place]:
                yield f"run {run_id}: '{place}' was begun {begun[place]} times, and started {started[place]} times"


def nothing_overlapped(after: TrialOutcome) -> Iterator[str]:
    try:
        after.stage.expect_no_overlap()
    except AssertionError as error:
        yield str(error)


def nothing_runs_on(after: TrialOutcome) -> Iterator[str]:
    try:
        after.stage.expect_nothing_left()
    except AssertionError as error:
        yield str(error)


def no_lock_is_held(after: TrialOutcome) -> Iterator[str]:
    for path in after.stage.home.locks.glob("*.lock"):
        if state_of(str(path)) != "free":
            yield f"'{path}' is held"


def nothing_lies_about(after: TrialOutcome) -> Iterator[str]:
    """Neither temporary files, nor files of a worker that is gone."""
    left = stray_files(after)
    if left and after.is_left_to_gc:
        for path in (after.stage.home.folder / one for one in left):
            os.utime(path, (0, 0))
        after.service.machine.collect_garbage(RunRetention())
        left = stray_files(after)
    yield from (f"'{path}' is left in the home" for path in left)


def stray_files(after: TrialOutcome) -> list[str]:
    home = after.stage.home.folder
    unknown = [path.name for path in home.iterdir() if path.name not in HOME | READ]
    return unknown + [str(path.relative_to(home)) for path in after.files() if _is_stray(path, home)]


def _is_stray(path: Path, home: Path) -> bool:
    """Temporary files, those of workers, and notes that a log has to be shipped."""
    folders = (home / "workers", home / "unshipped")
    return path.name.startswith(".half-") or any(path.is_relative_to(folder) for folder in folders)


def no_secret_was_written(after: TrialOutcome) -> Iterator[str]:
    for path in after.files():
        if SECRET.encode() in path.read_bytes():
            yield f"'{path}' has the secret in it"
    if SECRET in str(after.logs) or SECRET in str(after.shown):
        yield "an event has the secret in it"


def the_store_keeps_nothing_of_the_past(after: TrialOutcome) -> Iterator[str]:
    # Who asked may have died before the answer came: the store keeps the last of them for a while.
    for table in PASSING if not after.has_askers else PASSING_UNASKED:
        if rows := asked(after.stage, f"SELECT * FROM {table}"):
            yield f"{table} has {rows}"
    if rows := asked(after.stage, "SELECT run_id, holder FROM runs WHERE holder <> ''"):
        yield f"runs are held: {rows}"


def the_file_is_sound(after: TrialOutcome) -> Iterator[str]:
    if not after.stage.home.store_url:
        found = asked(after.stage, "PRAGMA integrity_check")
        if found != [("ok",)]:
            yield f"integrity_check says {found}"


Law = Callable[[TrialOutcome], Iterator[str]]
LAWS: tuple[Law, ...] = (
    the_outcome_is_as_undisturbed,
    the_logs_keep_the_promises,
    the_logs_replay_to_the_tables,
    everything_was_done,
    nothing_was_done_twice,
    every_result_was_worked_for,
    nothing_overlapped,
    nothing_runs_on,
    no_lock_is_held,
    nothing_lies_about,
    no_secret_was_written,
    the_store_keeps_nothing_of_the_past,
    the_file_is_sound,
)


def complaints(after: TrialOutcome, laws: Sequence[Law] = LAWS) -> list[str]:
    """All that is wrong, each with the law that it breaks."""
    return [f"{law.__name__}: {sentence}" for law in laws for sentence in law(after)]


def steady(shown: dict[str, Any]) -> dict[str, Any]:
    """What no fault may change: the outcome, its failures in any order, what artifacts hold and not their names."""
    found = outcome(shown)
    return {**found, "failures": sorted(found["failures"]), "steps": _without_names(found["steps"])}


def asked(stage: Stage, sql: str) -> list[tuple[Any, ...]]:
    """What the store itself says, behind the back of the product."""
    if stage.home.store_url:
        with psycopg.connect(stage.home.store_url) as server:
            return server.execute(sql.encode()).fetchall()
    file = apsw.Connection(os.fspath(stage.home.folder / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(file.execute(sql))
    finally:
        file.close()


def _without_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_names(one) for key, one in value.items() if not ("sha256" in value and key in _NAMES)}
    return [_without_names(one) for one in value] if isinstance(value, list) else value


# They tell the run and the attempt.
_NAMES = ("name", "path")


def _facts(log: Sequence[e.Entry], kinds: tuple[type, ...]) -> list[Any]:
    return [entry.fact for entry in log if isinstance(entry.fact, kinds)]


def _is_refusal(fact: e.Fact) -> bool:
    """Whether an attempt reports that its files cannot be written, or its output cannot be stored or read."""
    return isinstance(fact, e.AttemptFailed) and " cannot be " in fact.failure.message


def _times(lines: Sequence[Line], run_id: int, verb: str) -> Counter[str]:
    """How often the journal says so of each place."""
    return Counter(line.place for line in lines if (line.run_id, line.verb) == (run_id, verb))
