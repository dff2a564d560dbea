"""A case of coverage is what a real run does: the real engine over a store, an executor that runs nothing.

The player says in which order tasks end; the engine gets each end at that time, and fires its timers, passes the ends
of child runs on and decides by itself. Then both have the same logs, fact by fact, with the same times.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from random import Random
from textwrap import dedent
from typing import Any

import msgspec
import pytest
from tests.support.nightly import examples

from mulligan.analysis.coverage.assumptions import Assumptions
from mulligan.analysis.coverage.case_end import judge
from mulligan.analysis.coverage.exploring import TIMES, Explorer, Row, make_case, scenario_of
from mulligan.analysis.coverage.failure_kinds import Kind
from mulligan.analysis.coverage.injection import InjectedOutcomes, Scenario, play_scenario
from mulligan.analysis.coverage.results import VERDICTS, Case, Times
from mulligan.analysis.playing.assumed_values import assumed_inputs
from mulligan.analysis.playing.player import HOST, START, WORKER, PlayedRun, Player
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Action, Edge, Expression, Step, Template, Workflow, decode, encode, version
from mulligan.core.state.mailbox import is_open_wait
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.engine.engine import Engine
from mulligan.language import load_text
from mulligan.language.expressions import Cel
from mulligan.ports import Lease, NewRun, WorkerRecord
from mulligan.testing.clock import JumpingClock
from mulligan.testing.history import expression, handler, retry, shell, step, workflow
from mulligan.testing.memory.memory_store import MemoryStore
from proof.simulator.cluster.fake_tasks import FakeTasks
from proof.simulator.workflows import random_workflow

from .plain_workflows import plain_workflow, reading_workflow

TICKS_MAX = 400
LEASE_SECONDS = 1e9


class SteadyAnswers:
    """An evaluator whose answers depend on the expression alone, as those of a play must."""

    def evaluate(self, expression: Expression, names: Any) -> Any:
        kind, _, number = expression.source.partition(".")
        digit = sum(map(ord, number))
        answers = {
            "bool": digit % 4 != 0,
            "list": [0, 1, 2][: digit % 4],
            "key": digit % 3,
            "seconds": (0.5, 3, 20)[digit % 3],
            "text": f"text {digit % 10}",
        }
        return answers.get(kind, f"a {kind}")

    def condition(self, expression: Expression, names: Any) -> bool:
        return bool(self.evaluate(expression, names))

    def render(self, template: Template, names: Any) -> Any:
        values = [part if isinstance(part, str) else self.evaluate(part, names) for part in template.parts]
        return values[0] if len(values) == 1 else "".join(map(str, values))

    def keep(self, name: str, value: Any) -> Any:
        return value


class RecordingPlayer(Player):
    """Remembers what was reported to which run, and when."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.reported: list[tuple[datetime, int, r.Report]] = []
        self.waits: set[tuple[int, str]] = set()

    def report(self, report: r.Report, run: PlayedRun | None = None) -> None:
        state = (run or self.root).state
        run_id = state.run.run_id or 1
        self.reported.append((self.now, run_id, report))
        if isinstance(report, r.TaskEnded) and is_open_wait(state.places.get(report.place)):
            self.waits.add((run_id, report.place))
        super().report(report, run)


def play(explorer: Explorer, scenario: Scenario, assumed: Assumptions) -> RecordingPlayer:
    player = RecordingPlayer(
        explorer.workflow,
        evaluator=explorer._evaluator_of(assumed),
        outcomes=InjectedOutcomes(scenario.injections),
        inputs=explorer.inputs,
        child_inputs=assumed_inputs,
        entries_max=20_000,
    )
    play_scenario(player, scenario.stop)
    return player


class NotComparable(Exception):
    """The child run that a case assumes to fail has ended by itself, before or after that."""


class RealRun:
    """The same run by the engine: it is given the ends of tasks and the reports of people, and nothing else."""

    def __init__(self, definition: Workflow, inputs: dict[str, Any], evaluator: Any) -> None:
        self.clock = JumpingClock(START)
        # The clock jumps over hours: a loop that was held up for longer than its leases would spare what it lost.
        self.store = MemoryStore(clock=self.clock, lease_seconds=LEASE_SECONDS)
        self.store.register(WorkerRecord(WORKER, HOST, 1))
        self.executor = FakeTasks(WORKER, HOST, self.clock, slots=10_000)
        self.engine = Engine(self.store, self.clock, evaluator, WORKER, self.executor, lease_seconds=LEASE_SECONDS)
        data = encode(definition)
        request = r.RunRequested(START, 0, inputs, version(data), uid="run")
        new = NewRun(data, request.version, definition.name, request)
        # Whether a child run goes on that the case assumes to have ended.
        self.has_assumed = False
        self.engine.begin(self.store.create([new], WORKER), [new])

    def follow(self, player: RecordingPlayer) -> None:
        played = {run.state.run.run_id for run in player.runs}
        for at, run_id, report in player.reported:
            self.clock.advance_to(at)
            self._settle()
            if isinstance(report, r.TaskEnded | r.LeaseExpired):
                lease = self._lease(run_id, report.place, report.attempt)
                if lease is not None:
                    self.executor.end(lease, msgspec.structs.replace(report, at=at))
                elif (run_id, report.place) in player.waits:
                    # No task: the play says how a wait for an event ends.
                    self.store.put(run_id, report)
            elif isinstance(report, r.ChildEnded) and report.child_run_id not in played:
                # The child run was assumed: it goes on, and nobody waits for it.
                if self.store.run(report.child_run_id or run_id).status in RUN_ENDED:
                    raise NotComparable
                self.has_assumed = True
                self.store.put(run_id, report)
            elif isinstance(report, r.ApprovalGiven) or (isinstance(report, r.CancelRequested) and run_id == 1):
                self.store.put(run_id, report)
            self._settle()

    def _lease(self, run_id: int, place: str, attempt: int) -> Lease | None:
        found = (run_id, place, attempt)
        for lease in self.executor.unfinished:
            if (lease.task.run_id, lease.task.place, lease.task.attempt) == found:
                return lease
        return None

    def _settle(self) -> None:
        quiet = 0
        for _ in range(TICKS_MAX):
            self.engine.request_poll()
            is_busy = self.engine.tick(0.0)
            quiet = 0 if is_busy else quiet + 1
            if quiet == 2:
                return
        raise AssertionError("the engine still works")

    def close(self) -> None:
        self.store.close()


def facts(entries: Any) -> list[Any]:
    """What a log says, with its times, without what only a stored run has."""
    return [(entry.at, entry.caused_by, _plain(entry.fact)) for entry in entries]


def _plain(fact: e.Fact) -> Any:
    if isinstance(fact, e.RunStarted):
        return (fact.workflow, fact.inputs, fact.parent_run_id, fact.due, fact.uid)
    return fact


def check_case(explorer: Explorer, scenario: Scenario, assumed: Assumptions) -> RecordingPlayer:
    """Play a case and run it: both have the same logs."""
    player = play(explorer, scenario, assumed)
    real = RealRun(explorer.workflow, explorer.inputs, explorer._evaluator_of(assumed))
    try:
        real.follow(player)
        for run in player.runs:
            log = list(real.store.log(run.state.run.run_id))
            if real.has_assumed and any(isinstance(entry.fact, e.ReportRefused) for entry in log):
                raise NotComparable
            expected, found = facts(run.entries), facts(log)
            assert found == expected, describe(expected, found)
        assert real.store.run(1).status == player.state.run.status
    finally:
        real.close()
    return player


def describe(expected: list[Any], found: list[Any]) -> str:
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return f"event {index + 1}\n  played {one}\n  ran    {other}"
    more = expected[len(found) :] or found[len(expected) :]
    return f"{len(expected)} events were played, {len(found)} happened: {more[:1]}"


def without_breakers(definition: Workflow) -> Workflow:
    """Circuit breakers count failures of all runs, and a play assumes them to be closed."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: clean(inner) for key, inner in value.items() if key not in ("breaker", "breakers")}
        return [clean(inner) for inner in value] if isinstance(value, list) else value

    return decode(json.dumps(clean(json.loads(encode(definition)))).encode())


def random_case(rng: Random, explorer: Explorer) -> tuple[Row, Kind, Times]:
    row = rng.choice([row for row in explorer.rows.values() if explorer.kinds[row.name]])
    return row, rng.choice(explorer.kinds[row.name]), rng.choice(list(TIMES))


OFTEN = ("", "calls", "undo", "tools")


def plain_explorer_for(seed: int) -> tuple[Random, Explorer]:
    rng = Random(seed)
    return rng, Explorer(plain_workflow(rng), SteadyAnswers(), events_max=200_000)


def reading_explorer_for(seed: int) -> tuple[Random, Explorer]:
    rng = Random(seed)
    return rng, Explorer(reading_workflow(rng), Cel({}), events_max=200_000)


def explorer_for(seed: int) -> tuple[Random, Explorer]:
    rng = Random(seed)
    definition = without_breakers(random_workflow(rng, often=OFTEN[seed % len(OFTEN)]))
    return rng, Explorer(definition, SteadyAnswers(), events_max=50_000)


@pytest.mark.parametrize("make", [explorer_for, plain_explorer_for], ids=["all", "plain"])
def test_a_case_is_what_a_real_run_does(make: Callable[[int], tuple[Random, Explorer]]) -> None:
    compared, count = 0, examples(12, 40)
    for seed in range(count):
        rng, explorer = make(seed)
        row, kind, times = random_case(rng, explorer)
        assumed = explorer.assumptions_of(row)
        with suppress(NotComparable):
            check_case(explorer, scenario_of(row, kind, TIMES[times], assumed), assumed)
            compared += 1

    assert compared >= count - 2


@pytest.mark.parametrize(
    ("make", "count"),
    [(explorer_for, 9), (plain_explorer_for, 8), (reading_explorer_for, examples(4, 100))],
    ids=["all", "plain", "reading"],
)
def test_exploring_finds_what_playing_each_case_alone_finds(
    make: Callable[[int], tuple[Random, Explorer]], count: int
) -> None:
    verdicts = set()
    for seed in range(1_000, 1_000 + count):
        _, explorer = make(seed)
        for case in list(explorer.cases())[seed % 5 :: 5]:
            assert case == alone(explorer, case), f"seed {seed}"
            verdicts.add(case.verdict)

    assert verdicts >= set(VERDICTS) - {"parked", "unknown"}


def events_of(size: int, **fields: Any) -> int:
    """How many events are played for a chain of this many steps."""
    steps = [step(f"s{i}", needs=[f"s{i - 1}"] if i else [], **fields) for i in range(size)]
    explorer = Explorer(workflow(*steps), SteadyAnswers())
    for _ in explorer.cases():
        pass
    return explorer.events


@pytest.mark.parametrize("fields", [{}, {"rules": retry(2), "on_failure": handler("fix")}], ids=["plain", "handled"])
def test_a_case_of_a_long_workflow_costs_no_more_than_one_of_a_short_one(fields: dict[str, Any]) -> None:
    assert events_of(40, **fields) < 4.2 * events_of(10, **fields)


TIMELY = {
    "agents that share a budget": """
        budget: {calls: 3}
        steps:
          - {step: a, agent: {provider: claude, prompt: p}, retry: 1}
          - {step: b, agent: {provider: claude, prompt: p}, retry: 1, needs: a}
          - {step: c, agent: {provider: claude, prompt: p}, retry: 1, needs: b}
        """,
    "a step that may ask once": """
        steps: [{step: a, agent: {provider: claude, prompt: p}, retry: 1, budget: {calls: 1}}]
        """,
    "a condition of which each of two steps is reached under another assumption": """
        inputs: {x: integer}
        steps:
          - {step: a, shell: "true", take: first, next: [{to: b, when: inputs.x == 1}, {to: c, when: inputs.x == 2}]}
          - {step: b, shell: "true"}
          - {step: c, shell: "true"}
          - {step: b2, shell: "true", needs: b, validate: inputs.x == 1, retry: 1, on_failure: {shell: "true"}}
          - {step: c2, shell: "true", needs: c, validate: inputs.x == 1, retry: 1, on_failure: {shell: "true"}}
        """,
    "a result that is never right": "steps: [{step: a, shell: 'true', validate: 1 == 2, continue_on_error: true}]",
}
NAMED = {
    "names of themselves": [
        Step(
            name=name,
            action=shell(),
            rules=retry(1),
            validate=expression("attempt < 3 || step.name == 'a'", "attempt", "step"),
        )
        for name in ("a", "b")
    ],
    "the status of a step that runs beside": [
        step("z"),
        Step(name="a", action=shell(), rules=retry(1), validate=expression("steps.z.status == 'completed'", "steps.z")),
    ],
}


@pytest.mark.parametrize("definition", [*TIMELY.values(), *NAMED.values()], ids=[*TIMELY, *NAMED])
def test_what_depends_on_other_steps_is_not_decided_from_one_alone(definition: str | list[Step]) -> None:
    read = load_text(f"name: w\n{dedent(definition)}") if isinstance(definition, str) else workflow(*definition)
    explorer = Explorer(read, Cel({}))

    assert [(case, alone(explorer, case)) for case in explorer.cases() if case != alone(explorer, case)] == []


def events_of_workflow(definition: Workflow) -> int:
    explorer = Explorer(definition, Cel({}))
    for _ in explorer.cases():
        pass
    return explorer.events


def test_a_case_of_a_step_whose_output_is_read_costs_no_more_in_a_long_workflow() -> None:
    def read_by_the_last(size: int) -> Workflow:
        sources = [f"steps.s{i}.output" for i in range(size)]
        reads = Template(tuple(expression(source, source.removesuffix(".output")) for source in sources))
        names = [f"s{i}" for i in range(size)]
        last = step("last", needs=names, action=Action("shell", {"text": "true"}, {"X": reads}))
        return workflow(*(step(name) for name in names), last)

    assert events_of_workflow(read_by_the_last(40)) < 4.2 * events_of_workflow(read_by_the_last(10))


def test_steps_that_are_alike_are_played_once() -> None:
    def alike(size: int) -> Workflow:
        retried = [step(f"s{i}", next=[Edge(f"m{i}", 0, "failure", then="rerun")]) for i in range(size)]
        return workflow(*retried, *(step(f"m{i}") for i in range(size)))

    ten, forty = events_of_workflow(alike(10)), events_of_workflow(alike(40))

    # One more step costs its place in the run without failures, and a few events to see how its remediation is reached.
    assert forty - ten < 30 * 25


def alone(explorer: Explorer, case: Case) -> Case:
    row = explorer.rows[case.step]
    kind = next(kind for kind in explorer.kinds[case.step] if kind.name == case.failure)
    player = explorer.play_case(row, kind, TIMES[case.times])
    return make_case(row, kind, case.times, judge(player, row.path, row.step, kind))
