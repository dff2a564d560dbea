"""Needs and arrivals of a waiting step when their source runs again, in a loop or in a new round."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Need
from mulligan.testing.history import History, command, edge, step, workflow

# Whether an edge is taken is what its source says.
SAID = {"said": lambda names: names["output"]}
YES, NO = {"output": True}, {"output": False}


def said(to: str, **fields: Any) -> Any:
    return edge(to, when="said", **fields)


def visits(run: History, name: str) -> int:
    return len([fact for fact in run.facts(e.StepEntered) if fact.step == name])


# -- a source that is visited again ------------------------------------------------------------------------------------


def twice(first: dict[str, Any], *others: Any, **target: Any) -> History:
    """`a` has said something and goes again, since `s`, which always leads to it, was repaired; `t` waits for `u`."""
    target.setdefault("join", "any")
    steps = (
        step("s", next=[edge("a", "always"), edge("fix", "failure", then="rerun")]),
        step("fix"),
        step("a", next=[said("t")]),
        step("u", next=[said("t")]),
        step("t", **target),
    )
    run = History(workflow(*steps, *others, fail_fast="never"), SAID).start()
    return run.fail("s").ok("a", **first).ok("fix").ok("s")


def test_an_edge_that_was_dead_is_open_and_then_taken_when_its_source_is_visited_again() -> None:
    run = twice(NO)
    assert (run["a"].visit, run["a"].status) == (2, "ready")

    run.ok("a", **YES)
    assert run["t"].status == "waiting"
    run.ok("u", **NO)

    assert run["t"].status == "ready"


def test_an_edge_that_was_taken_twice_is_one_arrival_for_a_step_that_still_waits() -> None:
    run = twice(YES).ok("a", **YES)
    assert run["t"].status == "waiting"

    run.ok("u", **NO).ok("t")

    assert (visits(run, "t"), run.status) == (1, "completed")


def test_an_edge_that_was_taken_stays_taken_for_a_step_that_still_waits_whatever_the_next_visit_says() -> None:
    run = twice(YES).ok("a", **NO)
    assert run["t"].status == "waiting"

    run.ok("u", **NO)

    assert run["t"].status == "ready"


def test_an_edge_that_died_twice_is_one_edge() -> None:
    run = twice(NO).ok("a", **NO)
    assert run["t"].status == "waiting"

    run.ok("u", **NO)

    assert run["t"].status == "skipped"


def test_who_needs_a_step_that_goes_again_waits_for_it_again() -> None:
    run = twice(YES, step("d", needs=["a", "u"]))

    run.ok("u", **NO)
    assert run["d"].status == "waiting"
    run.ok("a", **YES)

    assert run["d"].status == "ready"


def test_who_needs_a_group_waits_again_for_a_member_that_goes_again() -> None:
    run = History(
        workflow(
            step("s", next=[edge("a", "always"), edge("fix", "failure", then="rerun")]),
            *(step("fix"), step("a"), step("b"), step("n")),
            step("d", needs=[Need("both", is_group=True), Need("n")]),
            groups={"both": ("a", "b")},
            fail_fast="never",
        )
    ).start()
    run.fail("s").ok("a", "b")

    run.ok("fix").ok("s").ok("n")
    assert run["d"].status == "waiting"
    run.ok("a")

    assert run["d"].status == "ready"


def test_what_has_ended_is_left_alone_when_a_member_of_the_group_it_needed_goes_again() -> None:
    run = History(
        workflow(
            step("s", next=[edge("a", "always"), edge("fix", "failure", then="rerun")]),
            *(step("fix"), step("a"), step("d", needs=[Need("group", is_group=True)]), step("e", needs=["a"])),
            groups={"group": ("a",)},
            fail_fast="never",
        )
    ).start()
    run.fail("s").ok("a").ok("d", "e")

    run.ok("fix").ok("s")

    assert run.ok("a").statuses == {"s": "completed", "fix": "completed", **dict.fromkeys("ade", "completed")}
    assert [visits(run, name) for name in "ade"] == [2, 1, 1]


def test_who_was_visited_for_a_step_before_that_went_again_is_visited_for_its_next_visit_as_well() -> None:
    steps = (
        step("s", next=[edge("a", "always"), edge("fix", "failure", then="rerun")]),
        *(step("fix"), step("a", next=["t"]), step("t")),
    )
    run = History(workflow(*steps, fail_fast="never")).start().fail("s").ok("a").ok("t")

    run.ok("fix").ok("s").ok("a")

    assert (visits(run, "t"), run.queued) == (2, ["t"])


def test_who_was_visited_for_a_step_while_that_went_again_is_visited_for_its_next_visit_as_well() -> None:
    run = twice(YES).ok("u", **NO)
    assert (run["a"].status, run["t"].status) == ("ready", "ready")

    run.ok("t").ok("a", **YES)

    assert (visits(run, "t"), run.queued) == (2, ["t"])


def unfinished(*others: Any, **target: Any) -> History:
    """`x` has been visited once and has led to `t`; it is to be visited once more, and may lead there again."""
    steps = (*(step(name, next=["x"]) for name in "vw"), step("x", join="each", next=[said("t")]), step("t", **target))
    return History(workflow(*steps, *others, fail_fast="never"), SAID).start().ok("v").ok("x", **YES)


def test_a_step_that_goes_again_is_entered_for_the_arrival_that_it_was_entered_for() -> None:
    run = unfinished(step("fix"), join="first", next=[edge("fix", "failure", then="rerun")])

    run.fail("t").ok("fix")

    assert (run["t"].visit, run.queued) == (2, ["t", "w"])


def test_an_edge_that_was_taken_by_the_first_of_some_visits_is_taken_whatever_the_others_say() -> None:
    run = unfinished(step("n"), join="first", needs=["n"]).ok("w")
    assert (run["x"].visit, run["x"].status) == (2, "ready")

    run.ok("n").ok("x", **NO).ok("t")

    assert (visits(run, "t"), run.status) == (1, "completed")


# -- one that was passed over ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("join", "other"), [("any", NO), ("all", YES)], ids=["any", "all"])
def test_a_step_that_was_skipped_by_its_when_is_visited_when_it_is_arrived_at_again(join: str, other: Any) -> None:
    """With `any` one of its edges is dead, which keeps nobody out; with `all` none is."""
    steps = (
        step("s", next=[edge("t", "always"), edge("fix", "failure", then="rerun")]),
        *(step("fix"), step("u", next=[said("t")]), step("t", join=join, when="wanted")),
    )
    answers = {**SAID, "wanted": lambda names: run["fix"].status == "completed"}
    run = History(workflow(*steps, fail_fast="never"), answers).start()
    run.ok("u", **other).fail("s")
    assert run["t"].status == "skipped"

    run.ok("fix").ok("s")

    assert run["t"].status == "ready"


def test_a_step_that_misses_one_of_all_its_edges_is_not_looked_at_when_another_arrives_again() -> None:
    steps = (
        step("s", next=[edge("t", "always"), edge("fix", "failure", then="rerun")]),
        *(step("fix"), step("u", next=[said("t")]), step("t", join="all")),
    )
    run = History(workflow(*steps, fail_fast="never"), SAID).start().ok("u", **NO).fail("s")

    run.ok("fix").ok("s")

    assert (run["t"].status, run["t"].queue, run.facts(e.StepPutBack)) == (
        *("skipped", ()),
        [e.StepPutBack("s", "rerun", "fix")],
    )


def test_a_step_whose_need_is_dead_is_not_looked_at_when_it_is_arrived_at_again() -> None:
    steps = (
        step("s", next=[edge("t", "always"), edge("fix", "failure", then="rerun")]),
        *(step("fix"), step("n"), step("t", needs=["n"])),
    )
    run = History(workflow(*steps, fail_fast="never")).start().fail("n").fail("s")

    run.ok("fix").ok("s")

    assert (run["t"].status, len(run.facts(e.StepSkipped)), len(run.facts(e.StepPutBack))) == ("skipped", 1, 1)


# -- the visits of a step ----------------------------------------------------------------------------------------------


def test_an_arrival_at_a_step_that_has_had_its_visit_too_many_is_let_be() -> None:
    sources = [step(name, next=["t"]) for name in "abc"]
    run = History(workflow(*sources, step("t", join="each", max_visits=1), fail_fast="never")).start()
    run.ok("a").ok("t").ok("b")
    assert (run["t"].visit, run["t"].failure.code) == (2, "LOOP_LIMIT")

    run.ok("c")

    assert run.facts(e.StepPutBack) == [e.StepPutBack("t", "arrival", "b")]
    assert (run["t"].status, run.facts(e.StepRestored)) == ("failed", [])


def test_of_two_edges_of_one_step_the_second_is_let_be_if_the_first_was_the_visit_too_many() -> None:
    steps = (step("a", next=["t"]), step("b", next=["t", edge("t", "always")]))
    run = History(workflow(*steps, step("t", join="each", max_visits=1), fail_fast="never")).start().ok("a").ok("t")

    run.ok("b")

    assert (run["t"].visit, run["t"].failure.code, run["t"].queue) == (2, "LOOP_LIMIT", ())
    assert (len(run.facts(e.StepPutBack)), run.facts(e.StepRestored), run.status) == (1, [], "failed")


def test_in_a_new_round_a_step_is_visited_for_its_last_arrival_again_and_its_visits_count_anew() -> None:
    sources = [step(name, next=["t"]) for name in "ab"]
    run = History(workflow(*sources, step("t", join="each", max_visits=2), fail_fast="never")).start()
    run.fail("b").ok("a").fail("t")

    run.retry().ok("t")
    assert (run["t"].arrival, run["t"].visit) == ("a#0", 2)
    run.ok("b")
    assert (run["t"].arrival, run["t"].visit) == ("b#0", 3)
    run.ok("t")

    assert run.status == "completed"


def test_a_failure_is_told_to_the_visit_that_will_be_for_it_after_those_that_wait_in_the_queue() -> None:
    sources = [step(name, next=[edge("fix", "failure")]) for name in "abc"]
    run = History(workflow(*sources, step("fix", join="each"), fail_fast="never")).start()

    run.fail("a").fail("b").fail("c")

    assert run.state.informed == {("fix", 1): (0,), ("fix", 2): (1,), ("fix", 3): (2,)}
    assert run.state.routed == run.state.informed


def test_failures_that_come_while_a_step_is_visited_are_told_to_its_next_visit_all_of_them() -> None:
    bells = [
        step(name, next=[edge("bell", "failure", handles=False), edge(f"fix-{name}", "failure", then="rerun")])
        for name in "ab"
    ]
    run = History(workflow(*bells, step("fix-a"), step("fix-b"), step("bell"), fail_fast="never")).start()
    run.fail("a").fail("b").ok("fix-a", "fix-b")
    assert (run["bell"].status, run["bell"].visit) == ("ready", 1)

    run.fail("a").fail("b")

    told = {key: failures for key, failures in run.state.informed.items() if key[0] == "bell"}
    assert told == {("bell", 1): (0, 1), ("bell", 2): (2, 3)}
    run.ok("bell").ok("bell")
    assert (visits(run, "bell"), run["bell"].arrival, run["bell"].status) == (2, "", "completed")


# -- loops -------------------------------------------------------------------------------------------------------------


def test_what_arrived_within_a_loop_is_taken_back_when_it_fires_also_from_who_still_waits() -> None:
    steps = (
        step("a", next=["b", "t"], is_start=True),
        *(step("b", next=[said("a")]), step("slow"), step("t", needs=["slow"])),
    )
    run = History(workflow(*steps), SAID).start().ok("a")

    run.ok("b", **YES).ok("slow")
    assert run["t"].status == "waiting"
    run.ok("a")

    assert run["t"].status == "ready"


def test_a_loop_uses_up_what_arrived_from_outside() -> None:
    steps = (
        *(step("s", next=["a"]), step("a", next=[said("b")]), step("x", next=["b"])),
        step("b", next=[edge("a", when="again")]),
    )
    run = History(workflow(*steps), {**SAID, "again": lambda names: run["b"].visit == 1}).start()
    run.ok("x", "s").ok("a", **YES).ok("b")
    assert (run["a"].visit, run["b"].status) == (2, "waiting")

    run.ok("a", **NO)

    assert (visits(run, "b"), run["b"].status, run.status) == (1, "completed", "completed")


def test_a_loop_leaves_to_who_is_visited_for_each_arrival_those_that_came_from_outside() -> None:
    steps = (
        *(step("x", next=["t"]), step("s", next=["a"]), step("a", next=["b", "t"]), step("b", next=[said("a")])),
        *(step("slow"), step("t", needs=["slow"], join="each")),
    )
    run = History(workflow(*steps), SAID).start().ok("s").ok("a").ok("x").ok("b", **YES)

    run.ok("a").ok("b", **NO).ok("slow").ok("t").ok("t")

    # One visit for `x`, and one for the second visit of `a`.
    assert (visits(run, "t"), run.status) == (2, "completed")


@pytest.mark.parametrize("need", [Need("z"), Need("group", is_group=True)], ids=["a step", "a group"])
def test_a_need_that_is_dead_stays_dead_when_a_loop_fires(need: Need) -> None:
    steps = (
        *(step("z"), step("a", next=["b", "t"], is_start=True), step("b", next=[said("a")])),
        step("t", needs=[need]),
    )
    run = History(workflow(*steps, groups={"group": ("z",)}, fail_fast="never"), SAID).start().fail("z")
    assert run["t"].status == "skipped"

    run.ok("a").ok("b", **YES).ok("a").ok("b", **NO)

    assert (visits(run, "t"), run["t"].status) == (0, "skipped")


def test_an_edge_that_died_within_a_loop_may_be_taken_when_it_fires() -> None:
    steps = (
        step("a", next=["b", said("t")], is_start=True),
        *(step("b", next=["t", edge("a", when="again")]), step("t", join="all")),
    )
    run = History(workflow(*steps), {**SAID, "again": lambda names: run["b"].visit == 1}).start().ok("a", **NO)
    assert run["t"].status == "skipped"

    run.ok("b").ok("a", **YES).ok("b")

    assert (run["t"].visit, run.queued) == (1, ["t"])


def test_an_edge_that_died_outside_a_loop_stays_dead_when_it_fires() -> None:
    steps = (
        *(step("x", next=[said("t")]), step("a", next=["b", "t"], is_start=True), step("b", next=[said("a")])),
        step("t", join="all"),
    )
    run = History(workflow(*steps), SAID).start().ok("x", **NO).ok("a").ok("b", **YES)

    run.ok("a").ok("b", **NO)

    assert (visits(run, "t"), run["t"].status, run.status) == (0, "skipped", "completed")


def test_what_goes_back_in_a_loop_goes_back_in_the_order_of_the_file() -> None:
    """So the same turn writes the same rows in the same order, wherever it is taken."""
    names = ["z", "k", "q", "b", "y", "c", "m", "a"]
    chain = [step(one, next=[two]) for one, two in pairwise(names)]
    run = History(workflow(*chain, step(names[-1], next=[said("z")])), SAID).start()
    run.ok(*names[:-1])

    run.ok("a", **YES)

    assert list(run.state.past) == [(name, 1) for name in names]


# -- rounds ------------------------------------------------------------------------------------------------------------


def test_a_step_that_was_undone_is_no_new_arrival_where_its_result_was_used_and_is_kept() -> None:
    steps = (step("a", undo=command("undo"), next=["t"]), step("t"), step("bad", needs=["t"]))
    run = History(workflow(*steps)).start().ok("a").ok("t").fail("bad").ok("a.undo@1")

    run.retry()

    assert run.queued == ["a"]


def test_a_step_whose_last_visit_failed_is_a_new_arrival_although_an_earlier_one_was_undone() -> None:
    sources = [step(name, next=["a"]) for name in "xy"]
    again = step("a", join="each", undo=command("undo"), next=[edge("h", "failure")])
    run = History(workflow(*sources, again, step("h"), step("bad"), fail_fast="never")).start()
    run.ok("x").ok("a").ok("y").fail("a").ok("h").fail("bad").ok("a.undo@1")
    assert (run.status, run["a"].status, run["a"].is_undone) == ("failed", "failed", True)

    run.retry(keep_completed=True).fail("a").fail("a")

    # Both visits of `a` are made again, since the first one was undone.
    assert (run["a"].visit, run["h"].visit, run.queued) == (4, 2, ["bad", "h"])
