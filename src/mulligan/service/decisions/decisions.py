"""Decisions about parked steps: reading them from JSON, checking them together, previewing and recording them.

A program may take the entries of `pending`, add `verdict` and `reason` to each, and hand them back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar, get_args

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Budget
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.turn import turn
from mulligan.errors import InputInvalid, MulliganError, StoreUnavailable, UnknownStep
from mulligan.history.item_names import PlaceNames
from mulligan.history.phrases import describe_adjustment
from mulligan.history.story import story
from mulligan.language.expressions import Cel
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.authoring.values import parse_duration, parse_size, read_budgets
from mulligan.service.decisions.pending import PendingEntry
from mulligan.service.runs.stored.run_reader import RunReader

Verdict = Literal["retry", "fail"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Found = TypeVar("Found")


class Decision(msgspec.Struct, frozen=True):
    """A decision about one parked step. `memory` (bytes) and `timeout` (seconds) are for the next attempt."""

    run_id: int
    step: str
    verdict: Verdict
    reason: str
    memory: int | None = None
    timeout: float | None = None
    # What agents may spend from now on, by step; "" is the run.
    budgets: dict[str, Budget] = {}
    # The attempt that it is about: refused if another one is parked. None: whichever is parked.
    attempt: int | None = None
    # How sure its author is, from 0 to 1.
    confidence: float | None = None


class DecidedStep(msgspec.Struct, frozen=True):
    """A decision about one parked step: recorded, previewed, or with an error refused."""

    decision: Decision
    by: str
    is_recorded: bool
    # What would follow, in sentences, and the attempts that could start: as far as it was asked for.
    follows: list[str] = []
    starts: list[str] = []
    error: MulliganError | None = None


class DecisionsResult(msgspec.Struct, frozen=True):
    """What came of each decision, in the order in which they were given."""

    dry_run: bool
    decisions: list[DecidedStep]


# -- reading ---------------------------------------------------------------------------------------------------------


def make_decision(
    run_id: int,
    step: str,
    verdict: Any,
    reason: str,
    memory: Any = None,
    timeout: Any = None,
    budgets: Sequence[str] | None = None,
    attempt: int | None = None,
    confidence: float | None = None,
) -> Decision:
    """A decision, checked as far as possible without its run. Memory, time and budgets may be texts: 4GiB, 30m."""
    if verdict not in VERDICTS:
        raise InputInvalid(f"'{verdict}' is not a verdict", hint="give retry or fail")
    if verdict == "fail" and (memory is not None or timeout is not None or budgets):
        raise InputInvalid("memory, timeout and budget are for a retry", hint="leave them out, or decide retry")
    if "\0" in reason:
        raise InputInvalid("the reason contains a NUL character", hint="remove it")
    wanted = (
        None if memory is None else parse_size(str(memory)),
        None if timeout is None else parse_duration(str(timeout)),
    )
    return Decision(run_id, step, verdict, reason, *wanted, read_budgets(budgets or ()), attempt, confidence)


def read_decisions(data: bytes) -> list[Decision]:
    """The decisions in a JSON array. The error lists everything that is wrong with any of them."""
    try:
        found = msgspec.json.decode(data)
    except RecursionError:
        raise InputInvalid("the decisions are not readable JSON: they are nested too deep") from None
    except UnicodeError:
        raise InputInvalid("the decisions are not JSON: they are not UTF-8") from None
    except msgspec.DecodeError as error:
        raise InputInvalid(f"the decisions are not JSON: {error}") from None
    if not isinstance(found, list):
        raise InputInvalid("the decisions are not an array", hint=_EXAMPLE)
    return act_on_each(found, _read)


_EXAMPLE = 'write [{"run_id": 1, "step": "build", "verdict": "retry", "reason": "why"}]'
# The required keys, and the optional ones.
_NEEDED: dict[str, tuple[type, str]] = {
    "run_id": (int, "a whole number"),
    "step": (str, "text"),
    "verdict": (str, "text"),
    "reason": (str, "text"),
}
_OPTIONAL = {
    "memory": ((int, str), "a size"),
    "timeout": ((int, float, str), "a duration"),
    "attempt": (int, "a whole number"),
    "confidence": ((int, float), "a number from 0 to 1"),
}
_KNOWN = (*_NEEDED, *_OPTIONAL)


def _read(entry: Any) -> Decision:
    if not isinstance(entry, dict):
        raise InputInvalid("it is not an object", hint=_EXAMPLE)
    for name in entry:
        if name not in _KNOWN and name not in PendingEntry.__struct_fields__:
            raise InputInvalid(f"it has an unknown key '{name}'", hint=did_you_mean(name, _KNOWN))
    for name, (kind, what) in _NEEDED.items():
        if entry.get(name) is None:
            raise InputInvalid(f"it has no '{name}'")
        _expect(name, entry[name], kind, what)
    for name, (kinds, what) in _OPTIONAL.items():
        if entry.get(name) is not None:
            _expect(name, entry[name], kinds, what)
    return make_decision(**{name: entry.get(name) for name in _KNOWN})  # type: ignore[arg-type]


def _expect(name: str, value: Any, kinds: Any, what: str) -> None:
    # In Python True is an int.
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise InputInvalid(f"its '{name}' is not {what}")


def act_on_each(entries: Sequence[Any], act: Callable[[Any], Found]) -> list[Found]:
    """The result of `act` for each entry. If it refuses any, one error lists all refusals."""
    found, errors = [], []
    for number, entry in enumerate(entries, start=1):
        try:
            found.append(act(entry))
        except StoreUnavailable:
            raise
        except MulliganError as error:
            errors.append(_with_message(error, f"decision {number}: {error.message}"))
    if len(errors) > 1:
        messages = "\n  ".join(error.message for error in errors)
        raise InputInvalid(f"{len(errors)} of {len(entries)} decisions are invalid; none is recorded", hint=messages)
    if errors:
        others = f"; none of the {len(entries)} is recorded" if len(entries) > 1 else ""
        raise _with_message(errors[0], f"{errors[0].message}{others}")
    return found


def _with_message(error: MulliganError, message: str) -> MulliganError:
    return type(error)(message, hint=error.hint, **error.data)


# -- what would follow -----------------------------------------------------------------------------------------------


def follow_decision(reader: RunReader, state: State, report: r.Classified) -> tuple[list[str], list[str]]:
    """What would follow from a decision in this state, which is moved on, and the attempts that could start.

    Writes nothing; raises if it is refused.
    """
    try:
        entries = turn(state, report, Cel(os.environ, reader.store.artifacts.fetch))
    except UnknownStep as error:
        raise UnknownStep(error.message, hint=did_you_mean(report.step, state.graph.nodes), step=report.step) from None
    state.commit()
    lines = [line for line in story(entries, state.workflow) if not line.is_detail]
    names = PlaceNames()
    sentences = [f"{names.name(state, line.place)}: {line.text}" if line.place else line.text for line in lines]
    return [*sentences, *_other_effects(state)], _starts(state, entries, names)


def _other_effects(state: State) -> Iterator[str]:
    """What the story of the run leaves out: a pause, and the run that waits for this one."""
    if state.run.status == "paused":
        yield "the run is paused: nothing starts until it is resumed"
    if state.run.status in RUN_ENDED and state.run.parent_run_id is not None:
        yield f"run {state.run.parent_run_id}, which waits for it, continues"


def _starts(state: State, entries: Sequence[e.Entry], names: PlaceNames) -> list[str]:
    """The attempts that could start, as far as there is room."""
    scheduled = (entry.fact for entry in entries if isinstance(entry.fact, e.AttemptScheduled))
    return [
        f"{names.name(state, fact.place)}: attempt {fact.attempt}{describe_adjustment(fact.adjusted)}"
        for fact in scheduled
    ]
