"""The state of a run: defaults of stored structs, and rolling a turn back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.model.agents.spending import Spent
from mulligan.core.model.event_types import Route
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Map
from mulligan.core.state.state import (
    EPOCH,
    NOTHING_TRIED,
    FailureRecord,
    PastVisit,
    Place,
    RecoveryProgress,
    Run,
    State,
    Stop,
    Tally,
    TriageDecision,
    UndoableVisit,
)
from mulligan.testing.history import T0, History, command, expression, step, workflow

# -- what is not said --------------------------------------------------------------------------------------------------

FAILED = failure("TIMEOUT", "too late")
# A struct with nothing but what it must have, what is written of it, and what the rest of it is read as.
WRITTEN: list[tuple[msgspec.Struct, dict[str, Any], dict[str, Any]]] = [
    (
        TriageDecision("fail", "someone", "why", "TIMEOUT"),
        {"verdict": "fail", "by": "someone", "reason": "why", "code": "TIMEOUT"},
        {"exit_code": None, "attempt": 0},
    ),
    (
        RecoveryProgress(),
        {},
        {
            "retries": {},
            "tries": 0,
            "losses": 0,
            "verdict": "",
            "due": None,
            "is_script_open": False,
            "handled_times": 0,
            "handled_attempt": 0,
            "reruns": 0,
            "handler_output": None,
            "handler_due": None,
            "is_handler_late": False,
            "adjusted": None,
            "parked_due": None,
            "defaults_used": 0,
            "parked_at": None,
            "parked_for": "",
            "ruling": None,
            "trying": "",
            "trying_since": None,
            "failure_seq": 0,
            "summary": None,
            "advice": None,
            "rejected": None,
            "suggestion": None,
            "avoids": None,
            "time_ends": 0,
            "seconds_min": 0.0,
        },
    ),
    (
        FailureRecord(0, "a", 1, FAILED, 7, T0),
        {"index": 0, "step": "a", "visit": 1, "failure": msgspec.to_builtins(FAILED), "seq": 7, "at": T0},
        {
            "entered_seq": 0,
            "attempt": 0,
            "retries_used": 0,
            "max_retries": 0,
            "reason": "",
            "target": "",
            "target_visit": 0,
            "then": "",
            "is_allowed": False,
            "recovered_by": "",
            "is_closed": False,
            "is_caught": False,
            "is_target_skipped": False,
            "route": Route("no_route"),
            "summary": None,
        },
    ),
    (PastVisit("failed"), {"status": "failed"}, {"failure_index": None}),
    (UndoableVisit("a", 1), {"step": "a", "visit": 1}, {"output": None, "failed_round": 0, "attempt": 0}),
    (Tally(), {}, {"tried": 0, "worked": 0, "judged": 0, "seconds": 0.0}),
    (
        Spent(),
        {},
        {"calls": 0, "tokens": None, "input_tokens": None, "output_tokens": None, "cost": None, "tool_calls": 0},
    ),
    (Stop("cancelled"), {"cause": "cancelled"}, {"now": False, "by": "", "reason": "", "correction": None}),
]
by_struct = pytest.mark.parametrize(
    ("struct", "said", "unsaid"), WRITTEN, ids=[type(struct).__name__ for struct, *_ in WRITTEN]
)


@by_struct
def test_a_row_holds_only_what_is_not_as_it_was_at_first(
    struct: msgspec.Struct, said: dict[str, Any], unsaid: dict[str, Any]
) -> None:
    assert msgspec.to_builtins(struct, builtin_types=(datetime,)) == said


@by_struct
def test_whatever_a_row_does_not_hold_is_read_as_it_was_at_first(
    struct: msgspec.Struct, said: dict[str, Any], unsaid: dict[str, Any]
) -> None:
    read = msgspec.convert(said, type(struct))

    assert {name: value for name, value in msgspec.structs.asdict(read).items() if name not in said} == unsaid


def test_a_place_that_nothing_has_happened_to_has_done_nothing_and_waits_for_nobody() -> None:
    spec = command()

    place = msgspec.structs.asdict(Place("step", "waiting", key="a", spec=spec))

    assert place == {
        **{"key": "a", "role": "step", "spec": spec, "status": "waiting", "parent": "", "index": 0},
        **{"visit": 0, "attempt": 0, "phase": "", "child": "", "entered_at": EPOCH, "entered_seq": 0, "due": None},
        **{"bindings": {}, "host": "", "worker": "", "output": None, "failure": None, "recovered_by": ""},
        **{"climb": NOTHING_TRIED, "warnings": (), "items": None, "open_needs": 0, "has_dead_need": False},
        **{"open_arrivals": 0, "taken_arrivals": 0, "dead_arrivals": 0, "queue": (), "arrival": "", "settled": ""},
        **{
            "last_status": "",
            "visits_before": 0,
            "is_undone": False,
            "has_failed_undo": False,
            "program": None,
            "delivery": None,
            "is_unwanted": False,
            "no_route": False,
            "loop_edge": None,
        },
        **{"failure_index": None, "given": None, "outputs": (), "before": None, "pause": None, "spent": Spent()},
        **{"paths": {}, "files": (), "fingerprint": "", "reused_run_id": 0, "kept_run_id": 0, "data": {}},
        **{"conversation": None, "call": None, "last_child": None},
    }


def test_a_run_that_has_not_begun_is_new_in_its_first_round_and_holds_nothing() -> None:
    run = msgspec.structs.asdict(Run())

    assert run == {
        **{"run_id": 0, "status": "new", "round": 1, "seq": 0, "at": EPOCH, "inputs": {}, "version": ""},
        **{"parent_run_id": None, "cwd": "", "active": 0, "waiting": 0, "stop": None, "paused_at": None, "due": None},
        **{"is_time_up": False, "loops": {}, "loops_taken": {}, "held": (), "unstarted": (), "undoing": ""},
        **{"has_undone": False, "outputs": {}, "degraded": False, "reason": "", "uid": "", "items_of": ""},
        **{"adjustments": {}, "paused_steps": (), "changed_only": False, "forced": (), "revision": None, "data": {}},
        **{"spent": Spent(), "budgets": {}, "callers_budget": None, "stepping": None, "workspace": ""},
        **{"notify": (), "late_due": None, "late_after": 0.0, "sessions": {}, "published": {}},
        **{"agent_decisions": 0, "forked_at": 0, "worktree_origin": None, "stops": 0, "is_forced": False},
        **{
            "child_round": None,
            "keep_completed": False,
            "adjusts": False,
            "called_attempt": 0,
            "spent_before": Spent(),
        },
    }


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_step_that_has_listed_nothing_has_no_items() -> None:
    run = History(workflow(step("a"))).start()

    assert run.state.items_of(run["a"]) == []


def test_what_runs_when_the_time_of_its_map_is_up_is_not_left_to_finish_as_it_is_where_a_run_stops() -> None:
    items = step("m", map=Map(over=expression("list")), do=(command("one"),), deadline=5)
    late, stopped = (History(workflow(items, cancel_grace=None), {"list": [1]}).start() for _ in range(2))

    late.started("m[0].0").wait(5)
    stopped.started("m[0].0").cancel()

    asked = [[one.grace_seconds for one in run.effects if isinstance(one, fx.StopTask)] for run in (late, stopped)]
    assert asked == [[10.0], [None]]


# -- turns -------------------------------------------------------------------------------------------------------------


def resting() -> State:
    """A state between two turns."""
    return History(workflow(step("a"), step("b"))).start().state


def no_turn_yet(state: State) -> None:
    pass


def after_a_commit(state: State) -> None:
    state.begin()
    state.commit()


def after_a_rollback(state: State) -> None:
    state.begin()
    state.rollback()


@pytest.mark.parametrize("ask", [State.rollback, State.run_before, State.changed_entries], ids=lambda ask: ask.__name__)
@pytest.mark.parametrize("bring", [no_turn_yet, after_a_commit, after_a_rollback], ids=lambda bring: bring.__name__)
def test_where_no_turn_is_under_way_there_is_nothing_to_take_back_or_to_write(bring: Any, ask: Any) -> None:
    state = State(workflow(step("a")))
    bring(state)

    with pytest.raises(AssertionError, match=r"^no turn has begun"):
        ask(state)


def test_a_turn_that_begins_anew_takes_back_what_came_after_that_and_nothing_before() -> None:
    state = resting()
    state.begin()
    state.touch("a").output = "kept"
    state.begin()
    state.touch("a").output = "taken back"

    state.rollback()

    assert state.places["a"].output == "kept"


def test_whatever_a_turn_did_to_a_place_it_stands_as_it_was_when_the_turn_is_taken_back() -> None:
    """Changed, dropped, another in its place, that one changed and dropped as well."""
    state = resting()
    before = msgspec.structs.replace(state.places["a"])
    state.begin()
    state.touch("a").output = 1
    state.drop(state.places, "a")
    state.add(Place("item", "running", key="a", spec=before.spec))
    state.touch("a").output = 2
    state.drop(state.places, "a")

    touched = state.changed_entries()
    state.rollback()

    assert touched == {("places", "a"): before}
    assert state.places["a"] == before


def test_a_place_that_a_turn_has_made_is_gone_when_the_turn_is_taken_back() -> None:
    state = resting()
    state.begin()
    state.add(Place("undo", "ready", key="a.undo@1", spec=command()))
    state.touch("a.undo@1").output = 1

    touched = state.changed_entries()
    state.rollback()

    assert touched == {("places", "a.undo@1"): None}
    assert sorted(state.places) == ["a", "b", "end"]


def test_a_place_that_a_turn_drops_untouched_is_back_when_the_turn_is_taken_back() -> None:
    state = resting()
    before = msgspec.structs.replace(state.places["a"])
    state.begin()
    state.drop(state.places, "a")

    touched = state.changed_entries()
    state.rollback()

    assert touched == {("places", "a"): before}
    assert state.places["a"] == before


def test_a_row_that_a_turn_drops_is_back_when_the_turn_is_taken_back_also_if_a_place_has_its_name() -> None:
    state = resting()
    state.arcs["a"] = "taken"
    state.begin()
    state.touch("a")
    state.drop(state.arcs, "a")
    state.drop(state.arcs, "b")

    state.rollback()

    assert state.arcs == {"a": "taken"}


def test_returning_to_a_mark_undoes_what_came_after_it_and_keeps_the_turn_open():
    state = State(workflow(step("a"), step("b")))
    state.add(Place("step", "waiting", key="a", spec=step("a")))
    state.begin()
    state.touch("a").visit = 1
    mark = state.mark()
    state.touch("a").visit = 2
    state.put(state.arcs, "a#0", "taken")
    state.run.seq = 7

    state.return_to(mark)

    assert (state.places["a"].visit, state.arcs, state.run.seq) == (1, {}, 0)
    state.touch("a").visit = 3
    state.rollback()
    assert state.places["a"].visit == 0


def test_a_mark_outside_of_a_turn_leaves_none_open():
    state = State(workflow(step("a")))
    state.add(Place("step", "waiting", key="a", spec=step("a")))

    state.return_to(state.mark())

    with pytest.raises(AssertionError):
        state.rollback()
