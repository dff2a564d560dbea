"""`max_parallel` of a workflow: how many steps are active at a time."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from tests.support.nightly import examples

from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.state.state import State
from mulligan.testing.history import History
from proof.simulator.simulation import Simulation
from proof.simulator.workflows import random_workflow

from .writing import run_of


def most_under_way(simulation: Simulation) -> int:
    """The most steps that were under way at once, after any event of the log."""
    state, most = State(simulation.workflow), 0
    for entry in simulation.log:
        evolve(state, entry)
        most = max(most, state.run.active)
    return most


def under_way(run: History) -> list[str]:
    return [step.key for step in run.state.steps() if step.is_active]


ROOTS = """
    name: w
    max_parallel: {most}
    steps:
      - {{step: a, shell: a, next: c}}
      - {{step: b, shell: b}}
      - {{step: c, shell: c}}
"""


def test_steps_that_could_start_wait_for_their_turn_in_the_order_of_the_file():
    run = run_of(ROOTS.format(most=1))

    order = [under_way(run)]
    for name in "abc":
        run.ok(name)
        order.append(under_way(run))

    assert (order, run.status) == ([["a"], ["b"], ["c"], []], "completed")


def test_an_earlier_step_goes_before_one_that_waits_longer():
    run = run_of("""
        name: w
        max_parallel: 1
        steps:
          - {step: a, shell: a, next: b}
          - {step: b, shell: b}
          - {step: z, shell: z}
    """).ok("a")

    assert under_way(run) == ["b"]


def test_as_many_as_there_is_room_for_start():
    assert under_way(run_of(ROOTS.format(most=2))) == ["a", "b"]
    assert under_way(run_of(ROOTS.format(most=2)).ok("b")) == ["a"]


def test_the_next_starts_as_soon_as_there_is_room_though_others_still_run():
    run = run_of("""
        name: w
        max_parallel: 2
        steps:
          - {step: a, shell: a}
          - {step: b, shell: b}
          - {step: c, shell: c}
    """)

    assert (under_way(run), under_way(run.ok("a"))) == (["a", "b"], ["b", "c"])


def test_a_step_that_backs_off_keeps_its_place():
    run = run_of("""
        name: w
        max_parallel: 1
        steps:
          - {step: a, shell: a, retry: {max_retries: 1, delay: 10s}}
          - {step: b, shell: b}
    """).fail("a")

    assert under_way(run) == ["a"]


def test_a_loop_goes_back_when_there_is_room_for_it():
    run = run_of("""
        name: w
        max_parallel: 1
        steps:
          - {step: a, shell: a, next: a, max_visits: 2}
          - {step: b, shell: b}
    """)

    assert under_way(run.ok("a")) == ["a"]
    assert under_way(run.ok("a")) == ["b"]


def test_a_failed_step_lets_the_others_go_on_and_a_remediation_has_its_turn():
    run = run_of("""
        name: w
        max_parallel: 1
        steps:
          - {step: a, shell: a, next: {to: fix, on: failure, then: rerun}}
          - {step: b, shell: b}
          - {step: fix, shell: fix}
    """).fail("a")

    order = [under_way(run), under_way(run.ok("b")), under_way(run.ok("fix"))]

    assert (order, run.ok("a").status) == ([["b"], ["fix"], ["a"]], "completed")


@pytest.mark.parametrize("join", ["any", "all", "first", "each"])
def test_two_steps_that_one_remediation_brings_back_go_one_after_the_other(join: str):
    run = (
        run_of(f"""
        name: w
        max_parallel: 1
        steps:
          - {{step: s, shell: s, next: [a, b]}}
          - {{step: a, shell: a, join: {join}, next: {{to: fix, on: failure, then: rerun}}}}
          - {{step: b, shell: b, join: {join}, next: {{to: fix, on: failure, then: rerun}}}}
          - {{step: fix, shell: fix}}
    """)
        .ok("s")
        .fail("a")
        .fail("b")
        .ok("fix")
    )

    order = [under_way(run)[0], under_way(run.ok("a"))[0]]

    assert (order, run.ok("b").status) == (["a", "b"], "completed")


def test_two_steps_that_one_remediation_brings_back_do_not_take_the_room_of_others():
    run = (
        run_of("""
        name: w
        max_parallel: 2
        steps:
          - {step: a, shell: a, next: {to: fix, on: failure, then: rerun}}
          - {step: b, shell: b, next: {to: fix, on: failure, then: rerun}}
          - {step: fix, shell: fix}
          - {step: long, shell: long}
    """)
        .fail("a")
        .fail("b")
    )
    assert under_way(run) == ["fix", "long"]

    assert under_way(run.ok("fix")) == ["a", "long"]
    assert under_way(run.ok("a")) == ["b", "long"]


def test_what_was_repaired_goes_again_before_others_that_wait_for_room():
    run = run_of("""
        name: w
        max_parallel: 1
        steps:
          - {step: later, shell: "true", needs: [fix]}
          - {step: a, shell: "true", next: [{to: fix, on: failure, then: rerun}]}
          - {step: fix, shell: "true"}
    """)

    run.fail("a").ok("fix")

    assert run.queued == ["a"]
    assert run.ok("a").queued == ["later"]


def test_what_is_held_back_while_the_run_is_paused_starts_when_it_goes_on():
    run = run_of(ROOTS.format(most=1)).pause().ok("a")
    paused = under_way(run)

    assert (paused, under_way(run.resume())) == ([], ["b"])


def test_a_run_that_is_cancelled_starts_nothing_more():
    run = run_of(ROOTS.format(most=1)).cancel()

    run.ok("a")

    assert [fact.step for fact in run.facts(e.StepEntered)] == ["a", "end"]


@pytest.mark.parametrize("seed", range(examples(5, 50)))
def test_random_runs_never_have_more_under_way_and_keep_every_promise(seed: int):
    workflow = msgspec.structs.replace(random_workflow(Random(seed)), max_parallel=1 + seed % 3)

    simulation = Simulation(seed, workflow)
    simulation.run()

    assert most_under_way(simulation) <= 1 + seed % 3
