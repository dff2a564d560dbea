"""Why a run went where it went: the edges taken, each other one and why not, and whose failure that handled."""

from __future__ import annotations

import pytest
from tests.support.nightly import examples

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Backoff, Need
from mulligan.history.story import StoryWriter, story
from mulligan.testing.history import History, edge, step, workflow
from proof.simulator.simulation import Simulation

SEEDS = range(examples(8, 40))
_ENDS = (e.RunCompleted, e.RunFailed, e.RunCancelled)


def story_lines(run: History) -> list[str]:
    return [f"{line.place}: {line.text}" for line in story(run.log, run.state.workflow)]


def test_the_chosen_failure_edge_is_told_and_of_every_other_why_not():
    edges = [
        edge("slow", "failure", codes=("TIMEOUT",), priority=1),
        edge("fix", "failure", exit_codes=(1, 2), priority=2),
        edge("last", "failure"),
        edge("page", "failure", handles=False),
        edge("mail", "failure", handles=False, exit_codes=(9,)),
        edge("log", "always"),
    ]
    run = History(workflow(step("a", next=edges), *map(step, ("slow", "fix", "last", "page", "mail", "log")))).start()

    run.fail("a", exit_code=2).ok("fix", "page", "log")

    assert story_lines(run) == [
        "a: failed with EXIT_NONZERO 2; routed to 'fix'",
        "a: edge to 'slow' not taken: it matches only TIMEOUT",
        "a: edge to 'last' not taken: the edge to 'fix' comes first",
        "a: edge to 'page' also taken; it handles no failure",
        "a: edge to 'mail' not taken: it matches only exit code 9",
        "a: edge to 'log' taken: on always; it handles no failure",
        "slow: skipped: no edge to it was taken",
        "last: skipped: no edge to it was taken",
        "mail: skipped: no edge to it was taken",
        "fix: completed; handled the failure of 'a'",
        "page: completed",
        "log: completed",
        "end: the run completed (degraded: 1 handled) (7 steps, 3 skipped)",
    ]


def test_where_no_failure_edge_fits_that_is_told_and_who_is_skipped_for_it():
    flow = workflow(
        step("a", next=[edge("slow", "failure", codes=("TIMEOUT",))]),
        step("slow"),
        step("n", needs=["a"]),
        step("o", needs=[Need("n", "success_or_skipped"), "a"]),
    )
    run = History(flow).start()

    run.fail("a")

    assert story_lines(run) == [
        "a: failed with EXIT_NONZERO 1; no failure edge matches",
        "a: edge to 'slow' not taken: it matches only TIMEOUT",
        "slow: skipped: no edge to it was taken",
        "n: skipped: 'a' did not complete",
        "o: skipped: 'a' did not complete",
        "end: the run failed: failure of 'a' not handled (4 steps, 1 failed, 3 skipped)",
    ]


CHAIN = workflow(
    step("a", next=[edge("b", "failure")]), step("b", next=[edge("c", "failure", then="continue")]), step("c")
)


def test_the_last_remediation_of_a_chain_handles_all_the_failures_that_led_to_it():
    run = History(CHAIN).start()

    run.fail("a").fail("b").ok("c")

    assert story_lines(run) == [
        "a: failed with EXIT_NONZERO 1; routed to 'b'",
        "b: failed with EXIT_NONZERO 1; routed to 'c', which will replace 'b'",
        "c: completed; handled the failures of 'b', 'a'",
        "b: replaced by 'c'",
        "end: the run completed (degraded: 2 handled) (3 steps)",
    ]


def test_a_chain_of_remediations_that_comes_to_nothing_is_told():
    run = History(CHAIN).start()

    run.fail("a").fail("b").fail("c")

    assert story_lines(run)[2:] == [
        "c: failed with EXIT_NONZERO 1; failures of 'b', 'a' not handled",
        "end: the run failed: failures of 'a', 'b', 'c' not handled (3 steps, 3 failed)",
    ]


def test_of_success_edges_those_are_told_that_were_not_taken():
    edges = [edge("small", when="output < 9"), edge("tiny", when="output < 5"), edge("other")]
    flow = workflow(step("a", next=edges, take="first"), *map(step, ("small", "tiny", "other")))
    run = History(flow, {"output < 9": False, "output < 5": True}).start()

    run.ok("a").ok("tiny")

    assert story_lines(run)[:3] == [
        "a: completed",
        "a: edge to 'small' not taken: condition not met: output < 9",
        "a: edge to 'other' not taken: the edge to 'tiny' comes first",
    ]


def test_a_loop_is_told_with_its_number_and_its_delay():
    edges = [edge("a", when="more", backoff=Backoff(delay=5.0, factor=2.0)), edge("b", when="done")]
    run = History(workflow(step("a", next=edges), step("b")), {"more": True, "done": False}).start()

    run.ok("a").wait(5).ok("a")

    assert story_lines(run) == [
        "a: completed",
        "a: edge to 'b' not taken: condition not met: done",
        "a: loop 1: back to 'a' in 5.0s",
        "a: visit 2 started",
        "a: completed",
        "a: edge to 'b' not taken: condition not met: done",
        "a: loop 2: back to 'a' in 10s",
    ]


def test_who_looks_on_from_the_middle_says_less_and_nothing_wrong():
    flow = workflow(step("a", next=[edge("b", "failure")]), step("b"), step("c", needs=["a"]), step("d", needs=["c"]))
    run = History(flow).start().fail("a")
    known = len(run.log)

    run.ok("b")

    rest = story(run.log[known:], flow)
    assert [f"{line.place}: {line.text}" for line in rest] == [
        "b: completed",
        "end: the run completed (degraded: 1 handled) (4 steps, 2 skipped)",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_whoever_is_told_as_unhandled_is_whom_the_verdict_counts(seed: int):
    history = Simulation(f"story {seed}").run()
    writer = StoryWriter(history.workflow)

    for entry in history.log:
        if isinstance(entry.fact, _ENDS):
            assert len(writer.memory.unhandled_steps()) == entry.fact.failed_steps_count
        writer.lines_for(entry)
