"""`next` edges: which are taken, which die, and what is recorded when none leads on."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Passed
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, edge, handler, retry, step, workflow

# -- success, failure, always ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "entered"),
    [
        # a step that completes takes its success and always edges
        ("ok", ["always", "success"]),
        # a step that fails takes its failure and always edges
        ("fail", ["always", "failure"]),
    ],
)
def test_an_edge_is_taken_by_the_end_it_is_for(outcome, entered):
    kinds = ("success", "failure", "always")
    run = History(
        workflow(step("a", next=[edge(kind, kind) for kind in kinds]), *(step(kind) for kind in kinds))
    ).start()

    getattr(run, outcome)("a")

    assert run.queued == entered
    assert [f.step for f in run.facts(e.StepSkipped)] == [kind for kind in kinds if kind not in entered]


def test_a_step_whose_only_edge_dies_is_skipped_for_want_of_an_arrival():
    run = History(workflow(step("a", next=["b"]), step("b"))).start()

    run.fail("a")

    assert run.facts(e.StepSkipped) == [e.StepSkipped("b", "no_arrival")]


@pytest.mark.parametrize("on", ["success", "failure", "always"])
def test_every_edge_of_a_skipped_step_dies(on):
    run = History(workflow(step("a", when="no", next=[edge("b", on)]), step("b")), {"no": False})

    run.start()

    assert run.statuses == {"a": "skipped", "b": "skipped"}


@pytest.mark.parametrize("on", ["success", "failure", "always"])
def test_every_edge_of_a_cancelled_step_dies(on):
    run = History(workflow(step("a", next=[edge("b", on)]), step("b"))).start()

    run.cancel()

    assert run.statuses == {"a": "cancelled", "b": "cancelled"}
    assert run.status == "cancelled"


def test_an_edge_is_neither_taken_nor_dead_while_its_source_retries():
    run = History(workflow(step("a", rules=retry(1, delay=5), next=["b", edge("c", "failure")]), step("b"), step("c")))

    run.start().fail("a")

    assert run.statuses == {"a": "backing_off", "b": "waiting", "c": "waiting"}


# -- take ------------------------------------------------------------------------------------------------------------


def chosen(take: str, *holding: str) -> History:
    """`a` leads to x, y and z, each under a condition of its own name; these hold."""
    names = ("x", "y", "z")
    answers = {name: name in holding for name in names}
    edges = [edge(name, when=name) for name in names]
    return History(workflow(step("a", take=take, next=edges), *map(step, names)), answers).start().ok("a")


@pytest.mark.parametrize(
    ("take", "holding", "entered"),
    [
        # all: every edge whose condition holds
        ("all", "xyz", ["x", "y", "z"]),
        ("all", "yz", ["y", "z"]),
        ("all", "", []),
        # first: only the first of those, in the order of the file
        ("first", "xyz", ["x"]),
        ("first", "yz", ["y"]),
        ("first", "z", ["z"]),
        ("first", "", []),
    ],
)
def test_take_says_how_many_of_the_edges_that_hold_are_taken(take, holding, entered):
    run = chosen(take, *holding)

    assert run.queued == entered


def test_take_first_asks_no_condition_after_the_first_that_holds():
    asked: list[str] = []

    def answer(name: str, value: bool):
        return lambda names: asked.append(name) or value

    History(
        workflow(step("a", take="first", next=[edge(n, when=n) for n in "xyz"]), *map(step, "xyz")),
        {"x": answer("x", False), "y": answer("y", True), "z": answer("z", True)},
    ).start().ok("a")

    assert asked == ["x", "y"]


def test_take_first_takes_always_edges_beside_the_first_success_edge():
    run = History(
        workflow(step("a", take="first", next=["x", "y", edge("log", "always")]), step("x"), step("y"), step("log"))
    ).start()

    run.ok("a")

    assert run.queued == ["log", "x"]


def test_the_condition_of_an_edge_sees_the_output():
    run = History(
        workflow(step("a", next=[edge("b", when="output > 1")]), step("b")),
        {"output > 1": lambda names: names["output"] > 1},
    ).start()

    run.ok("a", output=2)

    assert run.queued == ["b"]


def test_a_condition_on_an_edge_that_cannot_be_evaluated_is_a_failure_of_the_step_that_climbs():
    run = History(
        workflow(step("a", next=[edge("b", when="bad"), edge("fix", "failure")]), step("b"), step("fix")),
        {"bad": ExpressionFailed("no such key: 'x'")},
    ).start()

    run.ok("a")

    assert run.facts(e.StepFailed)[0].failure.code == "EXPRESSION_FAILED"
    assert run.facts(e.StepFailed)[0].failure.message == "no such key: 'x'"
    assert run.statuses == {"a": "failed", "b": "skipped", "fix": "ready"}


def test_a_condition_on_an_always_edge_of_a_failed_step_that_cannot_be_evaluated_does_not_hide_the_failure():
    run = History(
        workflow(step("a", next=[edge("b", "always", when="bad")]), step("b")),
        {"bad": ExpressionFailed("no such key: 'x'")},
    ).start()

    run.fail("a")

    assert run.facts(e.StepFailed)[0].failure.code == "EXIT_NONZERO"
    assert run.statuses == {"a": "failed", "b": "skipped"}


# -- no route --------------------------------------------------------------------------------------------------------


def test_no_edge_taken_is_recorded_and_fails_nothing():
    run = History(workflow(step("a", next=[edge("b", when="no")]), step("b")), {"no": False}).start()

    run.ok("a")

    assert run.facts(e.StepCompleted)[0].no_route is True
    assert run["a"].no_route is True
    assert run.status == "completed"


@pytest.mark.parametrize(
    "edges",
    [
        # no edges at all
        [],
        # only failure edges: there was none to take
        [edge("b", "failure")],
        # one taken
        ["b"],
        # an edge to `end` is an edge
        ["end"],
    ],
)
def test_no_route_is_not_recorded_where_nothing_was_missed(edges):
    run = History(workflow(step("a", next=edges), step("b"))).start()

    run.ok("a")

    assert run["a"].no_route is False


def test_an_always_edge_does_not_hide_that_no_success_edge_was_taken():
    run = History(
        workflow(step("a", next=[edge("b", when="no"), edge("c", "always")]), step("b"), step("c")), {"no": False}
    ).start()

    run.ok("a")

    assert run["a"].no_route is True
    assert run.queued == ["c"]


def test_no_match_fail_makes_it_a_failure_that_is_routed():
    run = History(
        workflow(
            step("a", no_match="fail", next=[edge("b", when="no"), edge("fix", "failure", codes=("NO_ROUTE",))]),
            step("b"),
            step("fix"),
        ),
        {"no": False},
    ).start()

    run.ok("a", output=7)
    failed = run.facts(e.StepFailed)[0]

    assert (failed.failure.code, failed.failure.message) == (
        "NO_ROUTE",
        "the condition of none of its success edges holds",
    )
    assert run.statuses == {"a": "failed", "b": "skipped", "fix": "ready"}


def test_no_match_fail_climbs_past_a_retry_for_anything_and_gets_to_the_handler():
    run = History(
        workflow(
            step("a", no_match="fail", rules=retry(3), on_failure=handler(), next=[edge("b", when="no")]), step("b")
        ),
        {"no": False},
    ).start()

    run.ok("a")
    handling = run["a"].status
    run.ok("a.on_failure@1.0")

    # The handler recovered the action, not the route: there is still none.
    assert handling == "handling"
    assert run["a"].failure.code == "NO_ROUTE"
    assert run.status == "failed"


def test_no_match_fail_means_nothing_where_an_edge_is_taken():
    run = History(workflow(step("a", no_match="fail", next=["b"]), step("b"))).start()

    run.ok("a").ok("b")

    assert run.status == "completed"


# -- failure edges ---------------------------------------------------------------------------------------------------


def routed(*edges, **outcome) -> History:
    """Step `a` fails with these failure edges."""
    fields = {"on_failure": handler()} if outcome.pop("with_handler", False) else {}
    targets = dict.fromkeys(each.to for each in edges if each.to != "end")
    run = History(workflow(step("a", next=edges, **fields), *map(step, targets), fail_fast="never")).start()
    return run.fail("a", **outcome)


@pytest.mark.parametrize(
    ("edges", "entered"),
    [
        # file order
        ([edge("x", "failure"), edge("y", "failure")], "x"),
        # the lower priority first, whatever the order of the file
        ([edge("x", "failure", priority=2), edge("y", "failure", priority=1)], "y"),
        ([edge("x", "failure", priority=0), edge("y", "failure", priority=-1)], "y"),
        # one with a priority before those without
        ([edge("x", "failure"), edge("y", "failure", priority=100)], "y"),
        # filters: the first that fits
        ([edge("x", "failure", codes=("TIMEOUT",)), edge("y", "failure")], "y"),
        ([edge("x", "failure", codes=("TIMEOUT", "EXIT_NONZERO")), edge("y", "failure")], "x"),
        ([edge("x", "failure", exit_codes=(2, 3)), edge("y", "failure", exit_codes=(1,))], "y"),
        # both filters must fit
        ([edge("x", "failure", codes=("EXIT_NONZERO",), exit_codes=(9,)), edge("y", "failure")], "y"),
    ],
)
def test_the_first_failure_edge_that_fits_is_taken_and_only_that(edges, entered):
    run = routed(*edges, exit_code=1)

    assert run.queued == [entered]
    assert run.facts(e.StepFailed)[0].route.to == entered


def test_a_timeout_has_no_exit_code_that_an_edge_could_name():
    run = routed(edge("x", "failure", exit_codes=(1, 0, 124)), edge("y", "failure"), exit_code=1, is_timed_out=True)

    assert run.queued == ["y"]


def test_a_filter_matches_a_handler_that_failed_too():
    run = routed(edge("x", "failure", codes=("HANDLER_FAILED",)), with_handler=True)

    run.fail("a.on_failure@1.0")

    assert run["a"].failure.code == "EXIT_NONZERO"
    assert run.queued == ["x"]


def test_a_filter_for_the_steps_own_code_matches_although_its_handler_failed():
    run = routed(edge("x", "failure", codes=("EXIT_NONZERO",)), with_handler=True)

    run.fail("a.on_failure@1.0")

    assert run.queued == ["x"]


def test_a_filter_for_a_failed_handler_does_not_match_a_step_without_one():
    run = routed(edge("x", "failure", codes=("HANDLER_FAILED",)))

    assert run.queued == []
    assert run.facts(e.StepFailed)[0].route.status == "no_route"


def test_the_route_says_why_the_other_edges_were_not_taken():
    run = routed(
        edge("x", "failure", codes=("TIMEOUT",)),
        edge("y", "failure", exit_codes=(5,)),
        edge("z", "failure"),
        edge("x", "failure"),
        exit_code=1,
    )

    route = run.facts(e.StepFailed)[0].route

    assert (route.status, route.edge, route.to, route.visit) == ("selected", 2, "z", 1)
    assert route.passed == (
        Passed(0, "x", "codes_do_not_match"),
        Passed(1, "y", "exit_codes_do_not_match"),
        Passed(3, "x", "not_first"),
    )


def test_a_failure_without_an_edge_is_routed_to_end_and_says_so():
    run = routed()
    failed = run.facts(e.StepFailed)[0]

    assert (failed.route.status, failed.routed_to_end, failed.original_failed_step) == ("no_route", True, "a")
    assert run.facts(e.RungPassed)[-1] == e.RungPassed("a", "route", "no_route")


def test_a_failure_that_no_edge_fits_says_that_there_were_some():
    run = routed(edge("x", "failure", codes=("TIMEOUT",)))

    assert run.facts(e.RungPassed)[-1] == e.RungPassed("a", "route", "no_edge_fits")
    assert run.status == "failed"


# -- what handles ----------------------------------------------------------------------------------------------------


def test_a_failure_is_handled_when_the_step_it_was_routed_to_completes():
    run = routed(edge("x", "failure")).ok("x")

    assert run.status == "completed"
    assert run.ended.degraded is True
    assert (run.ended.handled_steps_count, run.ended.failed_steps_count) == (1, 0)


def test_an_alert_is_taken_beside_the_chosen_edge_and_handles_nothing():
    run = routed(edge("x", "failure", handles=False), edge("y", "failure"))
    both = run.queued

    run.ok("x").fail("y")

    assert both == ["x", "y"]
    assert run.status == "failed"


def test_an_alert_alone_is_taken_and_the_failure_stays_unhandled():
    run = routed(edge("x", "failure", handles=False)).ok("x")

    assert run["x"].status == "completed"
    assert run.facts(e.StepFailed)[0].route.status == "no_route"
    assert run.status == "failed"


def test_every_alert_that_fits_is_taken():
    run = routed(
        edge("x", "failure", handles=False),
        edge("y", "failure", handles=False, codes=("TIMEOUT",)),
        edge("z", "failure", handles=False),
    )

    assert run.queued == ["x", "z"]


def test_an_always_edge_handles_nothing():
    run = routed(edge("x", "always")).ok("x")

    assert run.status == "failed"
    assert run.ended.failed_steps_count == 1


def test_an_edge_to_end_changes_nothing_and_handles_nothing():
    run = routed(edge("end", "failure"))
    failed = run.facts(e.StepFailed)[0]

    assert (failed.routed_to_end, failed.original_failed_step) == (True, "a")
    assert run.status == "failed"
    assert len([f for f in run.facts(e.StepEntered) if f.step == "end"]) == 1


def test_a_success_edge_to_end_starts_nothing_and_ends_nothing_early():
    run = History(workflow(step("a", next=["end"]), step("b"), step("c", needs=["a"]))).start()

    run.ok("a")

    assert (run.status, run.queued) == ("running", ["b", "c"])


def test_take_first_looks_at_the_lowest_priority_first_then_in_file_order() -> None:
    edges = [edge("last"), edge("second", priority=2), edge("first", priority=1), edge("also", priority=2)]
    flow = workflow(step("a", next=edges, take="first"), *(step(n) for n in ("last", "second", "first", "also")))

    run = History(flow).start().ok("a")

    assert run.queued == ["first"]
