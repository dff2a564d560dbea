"""The spans of a run, from its events: what is below what, how each ended, what happened in it."""

from __future__ import annotations

from mulligan.core.model import trace_ids
from mulligan.core.model.workflow import Triage
from mulligan.history.spans import Span, SpanReader
from mulligan.testing.history import History, edge, handler, retry, step, workflow


def spans(run: History) -> dict[str, Span]:
    """By name, and in the order in which they ended; a second one of a name has a number."""
    found: dict[str, Span] = {}
    for span in SpanReader().read(run.log):
        name = (
            span.name
            if span.name not in found
            else f"{span.name} {sum(one.startswith(span.name) for one in found) + 1}"
        )
        found[name] = span
    return found


def test_attempts_are_below_their_step_and_steps_below_the_run():
    run = History(workflow(step("a", rules=retry(1, delay=4)))).start().fail("a", 11).wait(4).wait(3).ok("a")

    found = spans(run)

    assert [*found] == ["attempt a", "attempt a 2", "step a", "step end", "run test"]
    whole, visit, first, second = found["run test"], found["step a"], found["attempt a"], found["attempt a 2"]
    assert whole.parent_id == ""
    assert visit.parent_id == whole.span_id
    assert first.parent_id == second.parent_id == visit.span_id
    assert len({span.trace_id for span in found.values()}) == 1
    assert (first.status, second.status, visit.status, whole.status) == ("error", "ok", "ok", "ok")
    assert first.message.startswith("EXIT_NONZERO")
    assert first.attributes["mulligan.code"] == "EXIT_NONZERO"
    assert [event.name for event in visit.events] == ["retry scheduled"]
    assert (whole.end - whole.start).total_seconds() == 7
    assert (second.end - second.start).total_seconds() == 3


def test_a_span_of_an_attempt_has_the_id_that_the_attempt_was_given():
    run = History(workflow(step("a"))).start().ok("a")
    identity = trace_ids.run_identity(run.state.run.uid, run.state.run.run_id)

    assert spans(run)["attempt a"].span_id == trace_ids.attempt_span_id(identity, "a", 1)


def test_a_failure_that_is_routed_says_where_and_a_handler_is_an_event():
    rescued = step("a", on_failure=handler(), next=[edge("fix", "failure")])
    run = History(workflow(rescued, step("fix"))).start().fail("a").fail("a.on_failure@1.0").ok("fix")

    visit = spans(run)["step a"]

    assert (visit.status, visit.attributes["mulligan.routed_to"]) == ("error", "fix")
    assert "handler started" in [event.name for event in visit.events]
    assert spans(run)["attempt a.on_failure@1.0"].parent_id == visit.span_id


def test_a_step_that_waits_for_a_person_says_so_and_who_decided():
    run = History(workflow(step("a", triage=Triage()))).start().fail("a")
    run.classify("a", "retry").ok("a")

    names = [event.name for event in spans(run)["step a"].events]

    assert names[-2:] == ["parked for a decision", "decided"]


def test_what_a_cancelled_run_cuts_off_ends_with_it():
    run = History(workflow(step("a"))).start().cancel(now=True)
    run.interrupt("a")

    found = spans(run)

    assert found["run test"].attributes["mulligan.outcome"] == "cancelled"
    assert (found["attempt a"].status, found["step a"].status, found["run test"].status) == ("unset", "unset", "unset")


def test_another_round_is_another_span_of_the_same_trace():
    run = History(workflow(step("a"))).start().fail("a").retry().ok("a")

    found = spans(run)

    assert found["run test"].trace_id == found["run test 2"].trace_id
    assert found["run test"].span_id != found["run test 2"].span_id
    assert (found["run test"].status, found["run test 2"].status) == ("error", "ok")


def test_reading_in_pieces_gives_the_same_spans():
    run = History(workflow(step("a", rules=retry(1)), step("b"))).start().fail("a").ok("a").ok("b")
    reader = SpanReader()

    pieces = [span for entry in run.log for span in reader.read([entry])]

    assert pieces == [*SpanReader().read(run.log)]
