"""Take every ordinary turn both ways: at once, as `core.ordinary` does, and at length, and compare what comes of it.

`core.ordinary` says in one plain function what `core.turn` finds fact by fact. While `both_ways` is open, each such
turn of this process is taken three times: at length and at once, both undone, and then as the product takes it.
Entries, their bytes, rows, state and tasks must be the same, and so must be the statements for PostgreSQL, which are
made in fewer steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from mulligan.core import ordinary
from mulligan.core.effects import effects as fx
from mulligan.core.effects.snapshot import changes
from mulligan.core.effects.tasks import Task, make_task
from mulligan.core.model import events as e
from mulligan.core.model.codec import encode_all
from mulligan.core.model.reports import TaskEnded, TaskStarted
from mulligan.core.model.workflow import Expression, Template
from mulligan.core.state.scope import Evaluator
from mulligan.core.state.state import Place, State
from mulligan.core.turn import follow_at_length, follow_rest
from mulligan.ports import Commit
from mulligan.store.postgres import postgres_commit

# What the product calls: replaced while turns are compared.
_END_STEP, _START_STEP, _TASK_OF = ordinary.end_step, ordinary.start_step, ordinary.task_of
_ASK = postgres_commit.ordinary_statements


class WaysDiffer(AssertionError):
    """An ordinary turn means something else at length."""


class _Taken(NamedTuple):
    """What a turn has brought."""

    entries: list[e.Entry]
    lines: list[bytes]
    effects: list[list[fx.Effect]]
    rows: Any
    state: State | None


# Of so many turns the whole states are compared once: that is half of the cost, and their rows are compared of each.
STATES_EVERY = 10


class BothWays:
    """How many turns were compared."""

    def __init__(self) -> None:
        self.ends = 0
        self.starts = 0
        self.commits = 0


@contextmanager
def both_ways(one_of: int = 1) -> Iterator[BothWays]:
    """Compare every ordinary turn of this process with the same at length, or one of so many, as the log has it."""
    counts = BothWays()
    before = ordinary.end_step, ordinary.start_step, ordinary.task_of, postgres_commit.ordinary_statements
    end_step, start_step, task_of = _END_STEP, _START_STEP, _TASK_OF

    def is_compared(state: State, key: str) -> bool:
        place = state.places.get(key)
        return place is None or place.entered_seq % one_of == 0

    def end_both_ways(
        state: State, report: TaskEnded, evaluator: Evaluator, entries: list[e.Entry] | None = None
    ) -> ordinary.OrdinaryEnd | None:
        if not is_compared(state, report.place):
            return end_step(state, report, evaluator, entries)
        answers = _SameAnswers(evaluator)

        def at_once() -> Iterator[e.Entry]:
            end = end_step(state, report, answers.again())
            if end is None:
                raise _NotOrdinary
            return chain(end.entries, follow_rest(end))

        is_whole = counts.ends % STATES_EVERY == 0
        untouched = state.copy() if is_whole else None
        try:
            short = _try(state, at_once, is_whole=is_whole)
        except _NotOrdinary:
            if untouched is not None:
                _compare("a state that nothing has changed", state, untouched)
            return None
        counts.ends += 1
        _compare_all(short, _try(state, lambda: follow_at_length(state, report, answers.again()), is_whole=is_whole))
        if untouched is not None:
            _compare("the state after a turn that was undone", state, untouched)
        return end_step(state, report, answers.again(), entries)

    def start_both_ways(state: State, place: Place, worker: str, host: str, at: datetime) -> e.Entry:
        if not is_compared(state, place.key):
            return start_step(state, place, worker, host, at)
        is_whole = counts.starts % STATES_EVERY == 0
        counts.starts += 1
        turn = place.program.turn if place.program is not None else 0
        report = TaskStarted(at, place.key, place.attempt, worker, host, turn)
        short = _try(state, lambda: iter([start_step(state, place, worker, host, at)]), is_whole=is_whole)
        _compare_all(short, _try(state, lambda: follow_at_length(state, report, _NO_EVALUATOR), is_whole=is_whole))
        return start_step(state, state.places[place.key], worker, host, at)

    def task_both_ways(state: State, place: Place) -> Task:
        found = task_of(state, place)
        _compare("a task", found, make_task(state, place.key))
        return found

    def ask_both_ways(commit: Commit) -> Any:
        counts.commits += 1
        found = _ASK(commit)
        _compare("statements", found, list(postgres_commit.commit_statements([commit], (), "")))
        return found

    _replace(end_both_ways, start_both_ways, task_both_ways, ask_both_ways)
    try:
        yield counts
    finally:
        _replace(*before)


def _replace(end_step: Any, start_step: Any, task_of: Any, ask: Any) -> None:
    postgres_commit.ordinary_statements = ask
    ordinary.end_step, ordinary.start_step, ordinary.task_of = end_step, start_step, task_of


@contextmanager
def one_way() -> Iterator[None]:
    """Within `both_ways`: take ordinary turns as the product does."""
    compared = ordinary.end_step, ordinary.start_step, ordinary.task_of, postgres_commit.ordinary_statements
    _replace(_END_STEP, _START_STEP, _TASK_OF, _ASK)
    try:
        yield
    finally:
        _replace(*compared)


class _NotOrdinary(Exception):
    """The turn is not ordinary."""


class _SameAnswers:
    """An evaluator that is asked once for each answer: those of a test may say something else each time."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._answers: list[tuple[str, Any, Any, Exception | None]] = []
        self._next = 0

    def again(self) -> _SameAnswers:
        """From the first answer on."""
        self._next = 0
        return self

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        return self._answer("evaluate", expression, names)

    def condition(self, expression: Expression, names: Mapping[str, Any]) -> bool:
        return bool(self._answer("condition", expression, names))

    def render(self, template: Template, names: Mapping[str, Any]) -> Any:
        return self._answer("render", template, names)

    def keep(self, name: str, value: Any) -> Any:
        return self._answer("keep", name, value)

    def _answer(self, method: str, asked: Any, about: Any) -> Any:
        if self._next == len(self._answers):
            found, error = None, None
            try:
                found = getattr(self._evaluator, method)(asked, about)
            except Exception as raised:
                error = raised
            self._answers.append((method, asked, found, error))
        known, of, found, error = self._answers[self._next]
        _compare("a question", (method, asked), (known, of))
        self._next += 1
        if error is not None:
            raise error
        return found


# Nothing is evaluated when a task starts.
_NO_EVALUATOR: Any = None


def _try(state: State, follow: Callable[[], Iterator[e.Entry]], *, is_whole: bool) -> _Taken:
    """What a turn brings, which is undone; with the whole state after it, if that is asked for."""
    mark = state.mark()
    try:
        entries, effects = [], []
        for entry in follow():
            entries.append(entry)
            effects.append(list(fx.effects(state, entry.fact)))
        return _Taken(entries, encode_all(entries), effects, changes(state), state.copy() if is_whole else None)
    finally:
        state.return_to(mark)


def _compare_all(short: _Taken, long: _Taken) -> None:
    for name in _Taken._fields:
        _compare(name, getattr(short, name), getattr(long, name))


def _compare(what: str, short: object, long: object) -> None:
    if short != long:
        raise WaysDiffer(f"{what}: at once\n{_shown(short)}\nat length\n{_shown(long)}")


def _shown(value: object) -> str:
    if isinstance(value, State):
        return "\n".join(f"{name}: {getattr(value, name)}" for name in ("run", "places", "arcs", "barriers"))
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)
