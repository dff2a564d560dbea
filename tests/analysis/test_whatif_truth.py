"""What is said of a changed definition as a fact is what would have happened: in worlds in which that is known."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.analysis.test_whatif_reproduces import SteadyEvaluator
from tests.support.nightly import examples

from mulligan.analysis.playing.outcomes import Assumed, AssumedChild, Decision
from mulligan.analysis.playing.player import Player
from mulligan.analysis.whatif.attempt_names import AttemptNames, Named
from mulligan.analysis.whatif.knowledge import Draw, Knowledge
from mulligan.analysis.whatif.played_history import Undecidable
from mulligan.analysis.whatif.recording import Recording, record
from mulligan.analysis.whatif.redecide import redecide
from mulligan.core.model.failure import failure
from mulligan.core.model.graph import Graph
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import EventSent
from mulligan.core.model.workflow import Workflow
from mulligan.testing.history import T0
from proof.simulator.programs.drawing import EVENTS
from proof.simulator.workflows import random_workflow

CODES = ("TIMEOUT", "OUT_OF_MEMORY", "CUSTOM", "HTTP_4XX")


class World:
    """How everything ends, whatever the policy: each attempt by its name and by how it came to it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.names = AttemptNames()
        self.named: dict[str, Named] = {}

    def watch(self, run: Any, entry: Any) -> bool:
        named = self.names.note(run.state, entry)
        if named is not None:
            self.named[entry.fact.place] = named
        return False

    def number(self, *what: object) -> float:
        return int.from_bytes(hashlib.sha256(repr((self.seed, *what)).encode()).digest()[:8]) / 2**64

    def attempt(self, place: Any) -> tuple[object, ...]:
        named = self.named[place.key]
        return named.name, named.circumstances, place.spec.action

    def of_task(self, state: Any, place: Any, task: Any, at: Any) -> Assumed:
        attempt = self.attempt(place)
        # No two things happen at the same time.
        share, seconds = self.number(attempt, "works"), round(0.01 + self.number(attempt, "seconds") * 8, 6)
        if share < 0.6:
            return Assumed(Outcome(), seconds, output={"n": 1}, is_lost=share < 0.05)
        how = self.number(attempt, "how")
        if how < 0.5:
            return Assumed(Outcome(exit_code=int(how * 20) + 1), seconds)
        return Assumed(Outcome(said=failure(CODES[int(how * 8) % 4], "it failed")), seconds)

    def of_event(self, state: Any, place: Any, at: Any) -> None:
        """None comes by itself: see `events`."""

    def events(self) -> list[EventSent]:
        """What is sent to the run, whatever it does."""
        whole = [(name, number) for name in EVENTS for number in range(3)]
        times = {one: self.number("event", one) * 60 for one in whole}
        sent = (EventSent(T0 + timedelta(seconds=round(times[one], 6)), one[0], one[1], "ann") for one in whole)
        return sorted(sent, key=lambda one: one.at)

    def of_child(self, state: Any, place: Any, child: Any, at: Any) -> AssumedChild:
        attempt = self.attempt(place)
        seconds = round(0.01 + self.number(attempt, "seconds") * 9, 6)
        if self.number(attempt, "works") < 0.6:
            return AssumedChild("completed", seconds)
        return AssumedChild("failed", seconds, failures=(failure("EXIT_NONZERO", "it failed", exit_code=3),))

    def of_person(self, state: Any, place: Any, at: Any) -> Decision | None:
        name = self.names.name_of(state, place.key, place.attempt)
        share, seconds = self.number(name, "verdict"), round(1 + self.number(name, "seconds") * 30, 6)
        if place.status != "pending_failed":
            return Decision("approve" if share < 0.7 else "refuse", seconds)
        return Decision("retry" if share < 0.6 else "fail", seconds) if share < 0.9 else None


def played(workflow: Workflow, seed: int) -> Recording:
    """What happens in the world of this seed."""
    world = World(seed)
    player = Player(workflow, evaluator=SteadyEvaluator(seed), outcomes=world, entries_max=20_000)
    player.watch = world.watch
    for event in world.events():
        player.plan(event)
    player.play()
    return record(Graph(workflow), player.entries)


def with_another_policy(workflow: Workflow, rng: Random) -> Workflow:
    """The same workflow, with other rules, handlers, triage, limits of time, or allowances of some steps."""
    changes: tuple[Any, ...] = (
        lambda step: {"rules": ()},
        lambda step: {"rules": tuple(replace(rule, max_retries=rule.max_retries + 2) for rule in step.rules)},
        lambda step: {"rules": tuple(replace(rule, max_retries=1) for rule in step.rules)},
        lambda step: {"triage": None},
        lambda step: {"on_failure": None},
        lambda step: {"timeout": 1.1307},
        lambda step: {"deadline": 20.7103},
        lambda step: {
            "rules": tuple(replace(rule, backoff=replace(rule.backoff, delay=31.0907)) for rule in step.rules)
        },
        lambda step: {"continue_on_error": True},
        lambda step: {},
        lambda step: {},
    )
    steps = tuple(replace(step, **rng.choice(changes)(step)) for step in workflow.steps)
    return replace(workflow, steps=steps, timeout=rng.choice((5.3701, 100.4107, workflow.timeout)))


def summary(status: str, degraded: bool, counts: Any) -> tuple[Any, ...]:
    return status, degraded, counts.attempts, counts.decisions, round(counts.seconds, 3)


@pytest.mark.parametrize("first", range(0, examples(20, 40), 10))
def test_what_is_said_as_a_fact_is_what_would_have_happened(first: int):
    facts = others = 0
    for seed in range(first, first + 10):
        rng = Random(f"policy {seed}")
        workflow = random_workflow(Random(f"truth {seed}"))
        then = played(workflow, seed)
        knowledge = Knowledge()
        knowledge.add(then)
        for _ in range(3):
            changed = with_another_policy(workflow, rng)
            truth = played(changed, seed)

            try:
                found = redecide(then, Graph(changed), SteadyEvaluator(seed), knowledge=knowledge, draw=Draw(0, 1))
            except Undecidable:
                others += 1
                continue

            if found.by == "estimate":
                others += 1
                continue
            facts += 1
            said = summary(found.status, found.state.run.degraded, found.counts)
            assert said == summary(truth.status, truth.degraded, truth.counts), seed
    # A test that finds nothing to compare proves nothing.
    assert facts > others
