"""Rung 4: the failed step chooses a failure edge and records why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Passed, Route
from mulligan.core.model.workflow import Edge, Rule
from mulligan.testing.history import History, command, edge, handler, retry, step, workflow

TARGETS = ("fix", "mend", "page")


def run_of(*edges: Edge, **fields: Any) -> History:
    """A run of `a` with these edges, to steps that nothing else leads to."""
    named = [name for name in TARGETS if any(e_.to == name for e_ in edges)]
    return History(workflow(step("a", next=edges, **fields), *(step(name) for name in named))).start()


def failed(run: History) -> e.StepFailed:
    return next(fact for fact in run.facts(e.StepFailed) if fact.step == "a")


# -- when a route is looked for --------------------------------------------------------------------------------------


def test_a_failure_without_retries_is_sent_to_its_remediation():
    """Alphred: max_retries 0 and a failure edge schedules the remediation."""
    run = run_of(edge("fix", on="failure")).fail("a")

    assert run.queued == ["fix"]
    assert failed(run).route == Route("selected", 0, "fix", 1)
    assert (failed(run).taken, failed(run).routed_to_end, failed(run).original_failed_step) == ((0,), False, "")


def test_a_route_is_looked_for_only_when_the_retries_are_used_up():
    """Alphred: routes are evaluated once an attempt is no longer retryable."""
    run = run_of(edge("fix", on="failure"), rules=retry(1)).fail("a")

    assert (run.queued, run.statuses["fix"]) == (["a"], "waiting")
    assert run.fail("a").queued == ["fix"]


def test_a_route_is_looked_for_only_when_the_handler_has_failed():
    run = run_of(edge("fix", on="failure"), on_failure=handler("x")).fail("a")

    assert run.statuses["fix"] == "waiting"
    assert run.fail("a.on_failure@1.0").queued == ["fix"]


def test_a_step_that_was_recovered_takes_no_failure_edge():
    run = run_of(edge("fix", on="failure"), on_failure=handler("x")).fail("a").ok("a.on_failure@1.0")

    assert run.statuses == {"a": "completed", "fix": "skipped"}


def test_without_a_route_the_run_fails_and_the_event_says_where_the_failure_went():
    """Alphred: nodes without failure routes preserve terminal failure. NoETL: routed to end."""
    run = run_of().fail("a")

    assert run.status == "failed"
    assert failed(run).route == Route("no_route", reason="no_edge")
    assert (failed(run).routed_to_end, failed(run).original_failed_step) == (True, "a")
    assert run.passed[-1] == ("route", "no_route")


def test_a_remediation_that_completes_handles_the_failure():
    run = run_of(edge("fix", on="failure")).fail("a").ok("fix")

    assert (run.status, run.ended.degraded) == ("completed", True)
    assert (run.ended.handled_steps_count, run.ended.failed_steps_count) == (1, 0)


def test_a_remediation_that_fails_without_help_leaves_the_failure_unhandled():
    run = run_of(edge("fix", on="failure")).fail("a").fail("fix")

    assert run.status == "failed"
    assert run.ended.failed_steps_count == 2


def test_a_remediation_climbs_its_own_ladder():
    """A remediation is a step like any other: retry, handler, route."""
    rule = Rule(any=True, max_retries=1, recovery_script=command("clear"))
    flow = workflow(
        step("a", next=[edge("fix", on="failure")]),
        step("fix", rules=(rule,), on_failure=handler("x"), next=[edge("mend", on="failure")]),
        step("mend"),
    )
    run = History(flow).start().fail("a").fail("fix").ok("fix.script@1").fail("fix").fail("fix.on_failure@2.0")

    assert run.queued == ["mend"]
    assert run.ok("mend").status == "completed"
    assert run.ended.handled_steps_count == 2


def test_a_route_is_chosen_while_the_run_is_paused_and_the_run_stays_paused():
    """Alphred: a paused run stays paused while its remediation is scheduled."""
    run = run_of(edge("fix", on="failure")).started("a").pause().fail("a")

    assert (run.status, run["fix"].status) == ("paused", "ready")


def test_a_run_that_stops_takes_no_route_and_says_so():
    """Alphred: a cancelled run skips failure routing."""
    run = run_of(edge("fix", on="failure"), rules=retry(1, delay=60)).fail("a").cancel()

    assert failed(run).route == Route("skipped_terminal", reason="stopping")
    assert run.statuses["fix"] == "cancelled"


# -- which edge ------------------------------------------------------------------------------------------------------


def test_the_edge_with_the_lower_priority_is_chosen_and_the_others_are_told_why_not():
    """Alphred: deterministic selection among several failure edges by priority."""
    run = run_of(edge("fix", on="failure", priority=2), edge("mend", on="failure", priority=1)).fail("a")

    assert failed(run).route == Route("selected", 1, "mend", 1, passed=(Passed(0, "fix", "not_first"),))
    assert run.statuses == {"a": "failed", "fix": "skipped", "mend": "ready"}


def test_among_edges_without_priority_the_first_in_the_file_is_chosen():
    run = run_of(edge("fix", on="failure"), edge("mend", on="failure")).fail("a")

    assert run.queued == ["fix"]


def test_an_edge_with_a_priority_comes_before_one_without():
    run = run_of(edge("fix", on="failure"), edge("mend", on="failure", priority=9)).fail("a")

    assert run.queued == ["mend"]


def test_an_edge_for_another_code_is_passed():
    edges = [edge("fix", on="failure", codes=("TIMEOUT",)), edge("mend", on="failure", codes=("A", "EXIT_NONZERO"))]

    run = run_of(*edges).fail("a")

    assert failed(run).route == Route("selected", 1, "mend", 1, passed=(Passed(0, "fix", "codes_do_not_match"),))


def test_an_edge_for_another_exit_code_is_passed():
    edges = [edge("fix", on="failure", exit_codes=(10,)), edge("mend", on="failure", exit_codes=(11, 12))]

    run = run_of(*edges).fail("a", 12)

    assert failed(run).route == Route("selected", 1, "mend", 1, passed=(Passed(0, "fix", "exit_codes_do_not_match"),))


def test_an_edge_with_both_filters_needs_both():
    edges = [edge("fix", on="failure", codes=("EXIT_NONZERO",), exit_codes=(10,))]

    assert run_of(*edges).fail("a", 10).queued == ["fix"]
    assert run_of(*edges).fail("a", 11).queued == []


def test_a_filter_for_exit_codes_does_not_match_what_has_none():
    run = run_of(edge("fix", on="failure", exit_codes=(0, 1))).fail("a", None, is_timed_out=True)

    assert run.status == "failed"


def test_when_no_edge_fits_the_reasons_are_written_down():
    edges = [edge("fix", on="failure", codes=("TIMEOUT",)), edge("mend", on="failure", exit_codes=(9,))]

    run = run_of(*edges).fail("a")

    passed = (Passed(0, "fix", "codes_do_not_match"), Passed(1, "mend", "exit_codes_do_not_match"))
    assert failed(run).route == Route("no_route", reason="no_edge_fits", passed=passed)
    assert run.passed[-1] == ("route", "no_edge_fits")
    assert (run.status, failed(run).routed_to_end) == ("failed", True)


def test_success_edges_are_no_routes_for_a_failure():
    run = run_of(edge("fix")).fail("a")

    assert failed(run).route == Route("no_route", reason="no_edge")
    assert run.statuses["fix"] == "skipped"


def test_an_alert_is_taken_beside_the_chosen_edge_and_handles_nothing():
    run = run_of(edge("page", on="failure", handles=False), edge("fix", on="failure")).fail("a")

    assert run.queued == ["fix", "page"]
    assert failed(run).route.to == "fix"
    assert run.ok("fix").fail("page").ended.handled_steps_count == 1


def test_an_alert_alone_leaves_the_failure_unhandled():
    run = run_of(edge("page", on="failure", handles=False)).fail("a").ok("page")

    assert run.status == "failed"
    assert failed(run).route == Route("no_route", reason="no_edge")


def test_an_alert_for_another_code_is_not_taken():
    run = run_of(edge("page", on="failure", handles=False, codes=("TIMEOUT",))).fail("a")

    assert run.statuses["page"] == "skipped"


def test_an_always_edge_is_taken_and_handles_nothing():
    run = run_of(edge("page", on="always")).fail("a").ok("page")

    assert (run["page"].status, run.status) == ("completed", "failed")


def test_an_edge_to_end_handles_nothing():
    run = run_of(edge("end", on="failure")).fail("a")

    assert run.status == "failed"
    assert failed(run).routed_to_end is True


def test_a_remediation_that_is_skipped_leaves_the_failure_unhandled():
    flow = workflow(step("a", next=[edge("fix", on="failure")]), step("fix", when="never"))

    run = History(flow, {"never": False}).start().fail("a")

    assert (run.statuses["fix"], run.status) == ("skipped", "failed")


def test_a_remediation_that_may_fail_and_does_leaves_the_failure_unhandled():
    flow = workflow(step("a", next=[edge("fix", on="failure")]), step("fix", continue_on_error=True))

    run = History(flow).start().fail("a").fail("fix")

    assert run.status == "failed"


EDGES = st.builds(
    lambda priority, codes, exit_codes: edge(
        "fix", on="failure", priority=priority, codes=codes, exit_codes=exit_codes
    ),
    st.none() | st.integers(-3, 3),
    st.sampled_from([(), ("EXIT_NONZERO",), ("TIMEOUT",)]),
    st.sampled_from([(), (1,), (2,)]),
)


@settings(max_examples=examples(40, 100))
@given(st.lists(EDGES, max_size=5))
def test_exactly_one_edge_is_chosen_or_none_and_every_other_has_a_reason(edges):
    named = [
        edge(f"t{i}", on="failure", priority=x.priority, codes=x.codes, exit_codes=x.exit_codes)
        for i, x in enumerate(edges)
    ]
    flow = workflow(step("a", next=named), *(step(f"t{i}") for i in range(len(edges))))

    route = failed(History(flow).start().fail("a")).route

    fits = [i for i, x in enumerate(edges) if x.codes != ("TIMEOUT",) and x.exit_codes != (2,)]
    best = min(fits, key=lambda i: (edges[i].priority is None, edges[i].priority or 0, i), default=None)
    assert route.edge == best
    assert {p.edge for p in route.passed} | ({best} - {None}) == set(range(len(edges)))
    assert len(route.passed) == len(edges) - (best is not None)


@pytest.mark.parametrize("code", ["SECURITY_VIOLATION", "HTTP_4XX"])
def test_a_fatal_failure_is_routed_like_any_other(code):
    run = run_of(edge("fix", on="failure")).fail("a", None, code=code)

    assert run.queued == ["fix"]
    assert run.ok("fix").status == "completed"


@pytest.mark.parametrize("is_doomed", [False, True])
def test_the_edges_that_are_taken_are_told_in_the_order_of_the_file(is_doomed: bool):
    names = [f"t{i}" for i in range(9)]
    edges = [edge(name, on="always" if name in ("t1", "t8") else "success") for name in names]
    a = step("a", next=edges, on_failure=handler("fix") if is_doomed else None, handler_failure_fatal=is_doomed)
    run = History(workflow(a, *(step(name) for name in names))).start().fail("a")

    if is_doomed:
        run.fail("a.on_failure@1.0")

    assert run.facts(e.StepFailed)[0].taken == (1, 8)


def test_a_failure_that_is_sent_on_does_not_go_back_as_well():
    flow = workflow(
        step("top", next=["a"]),
        step("a", next=[edge("fix", on="failure"), edge("top", on="always")]),
        step("fix"),
    )

    run = History(flow).start().ok("top").fail("a")

    assert run.facts(e.StepFailed)[0].taken == (0,)
    assert run.ok("fix").status == "completed"


def test_an_edge_to_end_brings_nothing_back_whatever_it_says():
    flow = workflow(step("a", next=[edge("end", on="failure", then="rerun")]), step("b", needs=["a"]))

    run = History(flow).start().fail("a")

    assert run.facts(e.StepFailed)[0].is_final
    assert (run.state.failures[0].target, run.state.failures[0].then) == ("", "")
    assert (run.status, run.statuses) == ("failed", {"a": "failed", "b": "skipped"})


def test_a_step_that_may_fail_goes_nowhere_when_its_handler_fails_fatally():
    flow = workflow(
        step("a", on_failure=handler("fix"), handler_failure_fatal=True, continue_on_error=True, next=["b"]),
        step("b"),
        fail_fast="never",
    )

    run = History(flow).start().fail("a").fail("a.on_failure@1.0")

    assert run.facts(e.StepFailed)[0].taken == ()
    assert run.statuses == {"a": "failed", "b": "skipped"}
