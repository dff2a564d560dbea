"""The table of transitions: the core enforces it for every fact and status, and the docs show it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.evolve.revision import plain_from_json
from mulligan.core.model import events as e
from mulligan.core.model.event_types import ReceivedEvent
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Command, Map, encode
from mulligan.core.state.conversation_records import Conversation, Turn
from mulligan.core.state.mailbox import receive
from mulligan.core.state.state import Items, Place, State
from mulligan.core.state.transitions import ACTIVE, ENDED, PLACE, RUN, RUN_ENDED, RUN_STATUSES, STATUSES, _all, _stay
from mulligan.errors import IllegalTransition
from mulligan.testing.history import T0, command, edge, expression, handler, retry, step, workflow
from tools.state_diagrams import COMMAND, DOCS, RUN_WORDS, STEP_WORDS, pages

FAILURE = failure("EXIT_NONZERO", "exit code 1")
ITEM, HANDLER = "m[0]", "a.on_failure@1.0"
FLOW = workflow(
    step("a", on_failure=handler("fix"), rules=retry(1), undo=command("undo"), next=[edge("a")]),
    step("m", map=Map(over=expression("list")), do=(command("one"),)),
)

# One fact of each kind, about a step, an item or a command that is there.
FACTS: dict[type[e.Fact], e.Fact] = {
    type(fact): fact
    for fact in (
        e.RunStarted(1, "test"),
        e.RunForked(7, 3),
        e.RunPaused(),
        e.RunResumed(),
        e.RunStopping("cancelled"),
        e.RunRevised("v", plain_from_json(encode(FLOW))),
        e.RunReopened(2, "someone", "again"),
        e.RunCompleted(),
        e.RunFailed(),
        e.RunCancelled(),
        e.RunLate(60.0),
        e.EventReceived("paid", 7),
        e.TimerHeld("retry", "a", 2),
        e.StepEntered("a", 1),
        e.StepSkipped("a", "when"),
        e.StepRestored("a", "when"),
        e.StepCompleted("a", 1),
        e.StepFailed("a", 1, FAILURE),
        e.StepCancelled("a", 1),
        e.StepPaused("a", "someone"),
        e.StepResumed("a", "someone"),
        e.StepParked("a", 1, 1, FAILURE, "always"),
        e.StepClassified("a", 1, "retry", "why", "someone"),
        e.TriageSuggested("a", 1, "claude", "below_confidence"),
        e.StepPutBack("a", "rerun"),
        e.StepReplaced("a", "fix"),
        e.StepSettled("a", "failed"),
        e.LoopTaken("a", 0, "a", 1, T0),
        e.LoopFired("a", 0, "a"),
        e.AttemptScheduled("a", 1),
        e.AttemptStarted("a", 1),
        e.AttemptSucceeded("a", 1),
        e.AttemptFailed("a", 1, FAILURE),
        e.AttemptLost("a", 1),
        e.AttemptInterrupted("a", 1),
        e.AttemptStopping("a", 1),
        e.AttemptCancelled("a", 1),
        e.ResultRejected("a", 1, FAILURE),
        e.RungPassed("a", "retry", "no_rule"),
        e.RetryScheduled("a", 2, 0, 1, T0),
        e.HandlerStarted("a", 1, "recovery"),
        e.HandlerSucceeded("a", 1, "recovery"),
        e.HandlerFailed("a", 1, FAILURE),
        e.CommandEntered(HANDLER, "a", "handler"),
        e.CommandCompleted(HANDLER, "a", "handler"),
        e.CommandFailed(HANDLER, "a", "handler", FAILURE),
        e.CommandCancelled(HANDLER, "a", "handler"),
        e.CommandSkipped(HANDLER, "a", "do"),
        e.MapExpanded("m", 1, [1]),
        e.ItemEntered(ITEM, "m", 0),
        e.ItemCompleted(ITEM, "m", 0),
        e.ItemFailed(ITEM, "m", 0, FAILURE),
        e.ItemCancelled(ITEM, "m", 0),
        e.UndoStarted("a", 1),
        e.UndoCompleted("a", 1),
        e.UndoFailed("a", 1, FAILURE),
        e.WarningRecorded("a", FAILURE),
        e.DataSet("a", 1, "x", 2, 3),
        e.EventDelivered("a", 1, 1, "paid"),
        e.ToolCalled("a", 1, 0, "search"),
        e.ToolAnswered("a", 1, 0, "search"),
        e.SessionKept("a", 1, "chat", []),
        e.ReportRefused("a", 1, "stale_attempt"),
        e.StepDefined("a", "d1", step("load")),
        e.StepAdded("load", "a", "", 0, "load", "d1"),
        e.StepRan("load", "a", "", 0, "load", "d1"),
        e.ValueRecorded("a", "now", "", 1, "now"),
        e.ProgramWaiting("a", 1, 1),
        e.ProgramResumed("a", 1, 2),
        e.TurnStarted("a", 1, 2),
        e.ProgramEnded("a", 1, 1, "returned"),
        e.CallCancelled("a"),
    )
}

MAKES_ITS_PLACE = {kind for kind, moves in PLACE.items() if "new" in moves}
TELLS_OF_ANYTHING = {e.TimerHeld, e.ReportRefused}
NEEDS_ITS_PLACE = [kind for kind in e.FACTS if kind not in {*RUN, *MAKES_ITS_PLACE, *TELLS_OF_ANYTHING}]


def entry(fact: Any, seq: int = 2) -> e.Entry:
    return e.Entry(seq, T0, 0, fact)


def subject(fact: Any) -> str:
    key: str = fact.place if hasattr(fact, "place") else fact.step
    return key


def started() -> State:
    state = State(FLOW)
    evolve(state, entry(e.RunStarted(1, "test"), 1))
    state.places["m"].items = Items(1, values=[1], todo=(0,))
    state.definitions["d1"] = step("load")
    receive(state, 1, ReceivedEvent("paid", T0))
    return state


def with_status(fact: e.Fact, status: str) -> State:
    """A run in which what the fact is about has this status; "new" is not there at all."""
    state, key = started(), subject(fact)
    state.places.pop(key, None)
    if status != "new":
        role: Any = "handler" if key == HANDLER else "item" if key == ITEM else "step"
        parent = {HANDLER: "a", ITEM: "m"}.get(key, "")
        spec = state.graph.nodes[key].step if key in state.graph.nodes else Command()
        place = Place(role, status, parent, key=key, spec=spec, last_status="completed")  # type: ignore[arg-type]
        place.items = Items(1, values=[1], todo=(0,)) if key == "m" else None
        place.conversation = Conversation((Turn({}),)) if isinstance(fact, e.ToolAnswered) else None
        state.places[key] = place
    return state


def with_run_status(status: str) -> State:
    state = started() if status != "new" else State(workflow(step("a")))
    state.run.status = status
    return state


def lawful_moves() -> list[tuple[type[e.Fact], str, str]]:
    return [(kind, before, after) for kind, moves in PLACE.items() for before, after in moves.items()]


def unlawful_statuses(kind: type[e.Fact]) -> list[str]:
    return [status for status in ("new", *STATUSES) if status not in PLACE[kind]]


# -- the table is whole ----------------------------------------------------------------------------------------------


def test_there_is_an_example_of_every_fact() -> None:
    assert set(FACTS) == set(e.FACTS)


def test_a_row_of_the_table_leads_all_its_statuses_to_one_or_leaves_each_where_it_is() -> None:
    assert _all("ready running", "failed") == {"ready": "failed", "running": "failed"}
    assert _stay("ready running") == {"ready": "ready", "running": "running"}


def test_the_table_speaks_of_statuses_that_exist() -> None:
    assert {s for moves in PLACE.values() for pair in moves.items() for s in pair} <= {"new", *STATUSES}
    assert {s for moves in RUN.values() for pair in moves.items() for s in pair} <= {"new", *RUN_STATUSES}


def test_every_status_can_be_reached_and_every_status_but_the_ends_can_be_left() -> None:
    entered = {after for _, before, after in lawful_moves() if before != after}
    left = {before for _, before, after in lawful_moves() if before != after}

    assert entered == set(STATUSES)
    assert left >= {"waiting", *ACTIVE}
    assert ACTIVE | ENDED | {"waiting"} == set(STATUSES)


def test_a_run_that_has_ended_goes_on_in_another_round_alone() -> None:
    for status in RUN_ENDED:
        # A corrected definition is followed by a round at once, and leaves the run where it is.
        corrected = [] if status == "completed" else [e.RunRevised]
        assert [kind for kind, moves in RUN.items() if status in moves] == [*corrected, e.RunReopened]
    assert RUN_ENDED | {"running", "paused"} == set(RUN_STATUSES)


# -- the core obeys it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "before", "after"), lawful_moves(), ids=lambda v: getattr(v, "__name__", v))
def test_an_allowed_fact_leads_where_the_table_says(kind: type[e.Fact], before: str, after: str) -> None:
    fact = FACTS[kind]
    state = with_status(fact, before)

    evolve(state, entry(fact))

    place = state.places.get(subject(fact))
    # A command that has ended, or never began, is gone: its parent knows what it gave.
    is_gone = kind in (e.CommandCompleted, e.CommandFailed, e.CommandCancelled, e.CommandSkipped)
    assert (place is None) if is_gone else (place is not None and place.status == after)


@pytest.mark.parametrize("kind", [*filter(unlawful_statuses, PLACE)], ids=lambda kind: kind.__name__)
def test_a_forbidden_fact_is_refused_and_changes_nothing(kind: type[e.Fact]) -> None:
    fact = FACTS[kind]
    for status in unlawful_statuses(kind):
        state = with_status(fact, status)
        before = copy.deepcopy(state)

        with pytest.raises(IllegalTransition) as refused:
            evolve(state, entry(fact))

        said = "not there" if status == "new" else status
        assert str(refused.value) == f"{kind.__name__} cannot follow for '{subject(fact)}', which is {said}"
        assert state == before, status


@pytest.mark.parametrize("kind", NEEDS_ITS_PLACE, ids=lambda kind: kind.__name__)
def test_a_fact_about_what_is_not_there_is_refused_and_changes_nothing(kind: type[e.Fact]) -> None:
    fact = FACTS[kind]
    state = with_status(fact, "new")
    before = copy.deepcopy(state)

    with pytest.raises(IllegalTransition):
        evolve(state, entry(fact))

    assert state == before


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (
            e.CommandEntered("x.on_failure@1.0", "x", "handler"),
            "CommandEntered cannot follow for 'x.on_failure@1.0': there is no 'x'",
        ),
        (e.ItemEntered("x[0]", "x", 0), "ItemEntered cannot follow for 'x[0]': there is no 'x'"),
        (e.ItemEntered("a[0]", "a", 0), "ItemEntered cannot follow for 'a[0]': 'a' has no items"),
        (e.CommandEntered("a.lister@1", "a", "lister"), "'a' has no lister command 0"),
        (e.CommandEntered("a.validator@1", "a", "validator"), "'a' has no validator command 0"),
    ],
)
def test_a_place_is_made_only_below_one_that_can_have_it(fact: e.Fact, text: str) -> None:
    state = started()
    before = copy.deepcopy(state)

    with pytest.raises(IllegalTransition) as refused:
        evolve(state, entry(fact))

    assert str(refused.value) == text
    assert state == before


@pytest.mark.parametrize("kind", RUN, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("status", ["new", *RUN_STATUSES])
def test_a_run_obeys_its_table(kind: type[e.Fact], status: str) -> None:
    state = with_run_status(status)
    before = copy.deepcopy(state)

    if status in RUN[kind]:
        evolve(state, entry(FACTS[kind]))

        assert state.run.status == RUN[kind][status]
    else:
        with pytest.raises(IllegalTransition) as refused:
            evolve(state, entry(FACTS[kind]))

        assert str(refused.value) == f"{kind.__name__} cannot follow in a run that is {status}"
        assert state == before


# -- the pages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", pages())
def test_the_pages_show_the_table(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8") if (DOCS / name).exists() else ""

    assert written == pages()[name], f"docs/reference/{name} and core/state/transitions.py differ: run `{COMMAND}`"


def test_the_pages_say_something_about_every_status() -> None:
    assert (tuple(STEP_WORDS), tuple(RUN_WORDS)) == (STATUSES, RUN_STATUSES)


def test_the_tables_in_the_pages_have_a_row_for_every_fact_that_moves_something() -> None:
    for table, page in ((PLACE, pages()["step-states.md"]), (RUN, pages()["run-states.md"])):
        assert [kind for kind in table if f"\n| {kind.__struct_config__.tag} | " not in page] == []
