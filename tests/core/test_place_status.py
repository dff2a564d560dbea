"""The fields of a place match its status: nothing of an attempt, a delay or a handler is left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.nightly import examples

from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model.codec import decode_log
from mulligan.core.model.events import Entry
from mulligan.core.model.workflow import Rule, Triage, Workflow, decode
from mulligan.core.state.state import Place, Run, State
from mulligan.core.state.transitions import ENDED
from mulligan.testing.history import History, command, handler, retry, step, workflow
from proof.simulator.simulation import Simulation

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("v*/*.log.jsonl"))

# What a place that is under way may hold, and the statuses in which it may.
HELD: dict[str, tuple[Callable[[Place], Any], set[str]]] = {
    # Of an attempt.
    "due": (lambda place: place.due, {"running"}),
    "bindings": (lambda place: place.bindings, {"ready", "running"}),
    "check": (lambda place: place.phase in ("validating", "finishing"), {"running"}),
    # Of a retry that is reserved; one that cannot even be scheduled has failed while it was.
    "retry": (lambda place: place.climb.due, {"backing_off", "running"}),
    "script": (lambda place: place.climb.is_script_open, {"backing_off"}),
    # Of a handler that runs.
    "handler_due": (lambda place: place.climb.handler_due, {"handling"}),
    "handler_late": (lambda place: place.climb.is_handler_late, {"handling"}),
    # Of a step that waits for a person.
    "parked_due": (lambda place: place.climb.parked_due, {"pending_failed"}),
    "parked_at": (lambda place: place.climb.parked_at, {"pending_failed"}),
    # What it gave is there while it is checked.
    "output": (lambda place: place.output, {"running"}),
    # Of the visit before, and of the end of this one.
    "recovered_by": (lambda place: place.recovered_by, set()),
    "last_status": (lambda place: place.last_status, set()),
    "settled": (lambda place: place.settled, set()),
    "loop": (lambda place: place.loop_edge is not None, set()),
}
# What a place that waits or has ended holds no more.
OF_AN_ATTEMPT = ("due", "bindings", "phase")
# What can be said at all.
SAID: dict[str, set[str]] = {
    "phase": {"", "validating", "finishing", "stopping", "timeout", "deadline", "stopped", "waiting", "ending"},
    "settled": {"", "completed", "failed", "allowed", "skipped", "cancelled", "stood_in"},
    "last_status": {"", *ENDED},
}

# The same of a run.
HELD_BY_A_RUN: dict[str, tuple[Callable[[Run], Any], set[str]]] = {
    "paused_at": (lambda run: run.paused_at, {"paused"}),
    "held": (lambda run: run.held, {"paused"}),
    "unstarted": (lambda run: run.unstarted, {"paused"}),
    "loops": (lambda run: run.loops, {"running", "paused"}),
    "undoing": (lambda run: run.undoing, {"running", "paused"}),
    "reason": (lambda run: run.reason, {"paused", "completed", "failed", "cancelled"}),
    "outputs": (lambda run: run.outputs, {"completed", "failed", "cancelled"}),
    "degraded": (lambda run: run.degraded, {"completed"}),
}


def left_behind(state: State) -> Iterator[tuple[str, str, str]]:
    """What a place holds although its status is another: its key, its status, and what."""
    for place in state.places.values():
        # Items have a shorter life: their commands have the attempts.
        if place.is_active and place.role != "item":
            for name, (held, statuses) in HELD.items():
                if held(place) and place.status not in statuses:
                    yield place.key, place.status, name
        for name in () if place.is_active else OF_AN_ATTEMPT:
            if getattr(place, name):
                yield place.key, place.status, name
        for name, words in SAID.items():
            if getattr(place, name) not in words:
                yield place.key, place.status, f"{name}: {getattr(place, name)}"
        if place.child and place.child not in state.places:
            yield place.key, place.status, "child"
    for name, (held_by, statuses) in HELD_BY_A_RUN.items():
        if held_by(state.run) and state.run.status not in statuses:
            yield "the run", state.run.status, name


def after_every_fact(definition: Workflow, log: list[Entry]) -> list[tuple[int, str, str, str]]:
    state, found = State(definition), []
    for entry in log:
        evolve(state, entry)
        found += [(entry.seq, *held) for held in left_behind(state)]
    return found


def under_way(place: Place) -> list[str]:
    """What a place holds of a retry, a handler or a check."""
    return [name for name in ("retry", "script", "handler_due", "handler_late", "check") if HELD[name][0](place)]


@pytest.mark.parametrize("ended", ["ok", "fail"])
def test_a_parked_step_holds_nothing_of_its_handler(ended: str) -> None:
    flow = workflow(step("a", on_failure=handler(strategy="cleanup", timeout=60.0), triage=Triage(when="always")))
    run = History(flow).start().fail("a")
    assert under_way(run["a"]) == ["handler_due"]

    getattr(run, ended)("a.on_failure@1.0")

    assert (run["a"].status, under_way(run["a"])) == ("pending_failed", [])


def test_a_cleanup_after_a_delay_holds_nothing_of_the_retry() -> None:
    flow = workflow(step("a", rules=retry(1, delay=60), on_failure=handler(strategy="cleanup")))
    run = History(flow).start().fail("a")
    assert under_way(run["a"]) == ["retry"]

    run.cancel()

    assert (run["a"].status, under_way(run["a"])) == ("handling", ["handler_due"])


def test_a_rejected_result_is_checked_no_more() -> None:
    run = History(workflow(step("a", validator=command("check"), rules=retry(1, delay=60)))).start().ok("a")
    assert under_way(run["a"]) == ["check"]

    run.fail("a.validator@1")

    assert (run["a"].status, under_way(run["a"])) == ("backing_off", ["retry"])


def test_why_no_rule_granted_a_retry_is_forgotten_when_one_does() -> None:
    flow = workflow(step("a", rules=(Rule(exit_codes=(7,)),), triage=Triage()))
    run = History(flow).start().fail("a").classify("a", "retry")
    assert run["a"].climb.verdict == "no_rule"

    run.fail("a", 7)

    assert run["a"].climb.verdict == ""


@pytest.mark.parametrize("seed", range(examples(4, 40)))
def test_in_any_history_a_place_holds_what_belongs_to_its_status(seed: int) -> None:
    simulation = Simulation(f"places {seed}", forks=False).run()

    assert after_every_fact(simulation.workflow, simulation.log) == []


@pytest.mark.parametrize("log", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem[:2]}")
def test_in_an_old_log_a_place_holds_what_belongs_to_its_status(log: Path) -> None:
    definition = decode((log.parent / log.name.replace(".log.jsonl", ".workflow.json")).read_bytes())

    assert after_every_fact(definition, decode_log(log.read_bytes())) == []
