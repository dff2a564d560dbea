"""What facts and reports mean where they say nothing: logs and inboxes of old were written so, and must be read so."""

from __future__ import annotations

import msgspec
import pytest

from mulligan.core import events as e
from mulligan.core import reports as r
from mulligan.core.classify import Outcome

WRITTEN: list[type[msgspec.Struct]] = [*e.FACTS, *r.AnyReport.__args__, e.Kept, e.Adjusted, e.Route]
NOTHING = [(type(value), value) for value in (None, "", 0, False, (), {})]

# Where nothing is said, something is meant.
MEANT = {
    e.RunCompleted: {"round": 1, "evaluated_by_end_step": True},
    e.RunFailed: {"round": 1, "evaluated_by_end_step": True},
    e.RunCancelled: {"round": 1, "evaluated_by_end_step": True},
    e.StepCompleted: {"is_final": True},
    e.StepFailed: {"is_final": True, "route": e.Route("no_route")},
    e.AttemptScheduled: {"cause": "entered"},
    e.AttemptStopping: {"reason": "stopping"},
    r.TaskEnded: {"outcome": Outcome()},
}


def barest(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """One that says only what it must."""
    return kind(*(1 for field in msgspec.structs.fields(kind) if field.required))


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
def test_what_is_not_said_is_nothing_but_for_a_few(kind: type[msgspec.Struct]) -> None:
    unsaid = {field.name: getattr(barest(kind), field.name) for field in _optional(kind)}

    something = {name: value for name, value in unsaid.items() if (type(value), value) not in NOTHING}

    assert something == MEANT.get(kind, {})


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
def test_what_is_not_said_is_not_written(kind: type[msgspec.Struct]) -> None:
    written = msgspec.to_builtins(barest(kind))

    assert written.keys() - {"type"} == {field.name for field in msgspec.structs.fields(kind) if field.required}


def _optional(kind: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    return [field for field in msgspec.structs.fields(kind) if not field.required]


def test_a_fact_is_written_as_what_it_is_of_and_what_became_of_it() -> None:
    class StepSetAside(e.Fact):
        step: str

    class RunNoticed(e.Fact):
        pass

    assert msgspec.to_builtins(StepSetAside("a")) == {"type": "step.set_aside", "step": "a"}
    assert msgspec.to_builtins(RunNoticed()) == {"type": "run.noticed"}
