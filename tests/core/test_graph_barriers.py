"""Groups: one barrier for many steps that need many, and what it costs. Counted, never timed."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Kept
from mulligan.core.model.workflow import Need
from mulligan.core.state.state import State
from mulligan.testing.history import History, edge, step, workflow


def group(on: str = "success") -> Need:
    return Need("g", on, is_group=True)


def names(prefix: str, number: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{index}" for index in range(number))


def grouped(
    on: str = "success", *, members: int = 3, targets: int = 2, member: dict | None = None, **fields
) -> History:
    """`m0`, `m1`, … are one group; `t0`, `t1`, … need it."""
    inside, after = names("m", members), names("t", targets)
    steps = [*(step(m, **(member or {})) for m in inside), *(step(t, needs=[group(on)]) for t in after)]
    return History(workflow(*steps, groups={"g": inside}, fail_fast="never", **fields)).start()


class Counting(State):
    """A state that counts the places that are touched."""

    touches = 0

    def touch(self, key):
        self.touches += 1
        return super().touch(key)


# -- conditions ------------------------------------------------------------------------------------------------------


def test_a_barrier_opens_when_its_last_member_has_completed():
    run = grouped()

    run.ok("m0").ok("m2")
    before = (run["t0"].status, run["t1"].status)
    run.ok("m1")

    assert before == ("waiting", "waiting")
    assert run.queued == ["t0", "t1"]


def test_a_barrier_breaks_at_its_first_bad_member_and_skips_its_targets_once():
    run = grouped()

    run.fail("m1")
    skipped = run.facts(e.StepSkipped)
    run.fail("m0").ok("m2")

    assert skipped == [e.StepSkipped("t0", "need_unmet"), e.StepSkipped("t1", "need_unmet")]
    assert run.facts(e.StepSkipped) == skipped


def test_a_barrier_of_always_opens_whatever_way_its_members_ended():
    run = grouped("always")

    run.fail("m0").ok("m1").fail("m2")

    assert run.queued == ["t0", "t1"]


def test_a_barrier_of_success_or_skipped_opens_over_skipped_members_and_breaks_on_failed_ones():
    steps = [step("m0", when="no"), step("m1"), step("t", needs=[group("success_or_skipped")])]
    definition = workflow(*steps, groups={"g": ("m0", "m1")}, fail_fast="never")

    opened = History(definition, {"no": False}).start().ok("m1")
    broken = History(definition, {"no": False}).start().fail("m1")

    assert (opened["t"].status, broken["t"].status) == ("ready", "skipped")


def test_two_conditions_on_one_group_are_two_barriers():
    inside = names("m", 2)
    steps = [*map(step, inside), step("strict", needs=[group()]), step("loose", needs=[group("always")])]
    run = History(workflow(*steps, groups={"g": inside}, fail_fast="never")).start()

    run.fail("m0")
    first = run["strict"].status
    run.ok("m1")

    assert (first, run["loose"].status) == ("skipped", "ready")


def test_a_target_waits_for_its_barrier_its_single_needs_and_its_arrivals():
    inside = names("m", 2)
    steps = [*map(step, inside), step("n"), step("x", next=["t"]), step("t", needs=[group(), "n"])]
    run = History(workflow(*steps, groups={"g": inside})).start()

    run.ok("m0").ok("m1").ok("n")
    before = run["t"].status
    run.ok("x")

    assert (before, run["t"].status) == ("waiting", "ready")


def test_a_member_of_one_group_may_be_a_target_of_another():
    run = History(
        workflow(
            step("a"),
            step("b"),
            step("c", needs=[Need("first", is_group=True)]),
            step("d", needs=[Need("second", is_group=True)]),
            groups={"first": ("a", "b"), "second": ("c", "b")},
        )
    ).start()

    run.ok("a").ok("b").ok("c").ok("d")

    assert run.status == "completed"


# -- members that come back ------------------------------------------------------------------------------------------


def test_a_barrier_waits_for_a_member_that_its_remediation_brings_back():
    inside = names("m", 2)
    steps = [*(step(m, next=[edge("fix", "failure", then="rerun")]) for m in inside), step("fix")]
    run = History(workflow(*steps, step("t", needs=[group()]), groups={"g": inside}, fail_fast="never")).start()

    run.ok("m0").fail("m1")
    failed = run["t"].status
    run.ok("fix")
    again = run["t"].status
    run.ok("m1")

    assert (failed, again, run["t"].status) == ("waiting", "waiting", "ready")


def test_a_barrier_breaks_when_the_remediation_of_a_member_fails():
    inside = names("m", 2)
    steps = [*(step(m, next=[edge("fix", "failure", then="rerun")]) for m in inside), step("fix")]
    run = History(workflow(*steps, step("t", needs=[group()]), groups={"g": inside}, fail_fast="never")).start()

    run.ok("m0").fail("m1").fail("fix")

    assert run["t"].status == "skipped"


def looping() -> History:
    """`a` leads to the members, `t` needs them, and leads back to `a` while its output is "again"."""
    inside = names("m", 2)
    steps = [
        step("a", next=inside),
        *map(step, inside),
        step("t", needs=[group()], next=[edge("a", when="again"), "z"]),
        step("z"),
    ]
    again = {"again": lambda names: names["output"] == "again"}
    return History(workflow(*steps, groups={"g": inside}, fail_fast="never"), again).start()


def test_a_loop_that_puts_the_members_back_closes_the_barrier_again():
    run = looping()

    run.ok("a").ok("m0").ok("m1").ok("t", output="again").ok("a").ok("m0")
    before = run["t"].status
    run.ok("m1").ok("t").ok("z")

    assert before == "waiting"
    assert run["t"].visit == 2
    assert run.status == "completed"


def test_a_loop_mends_a_barrier_that_was_broken():
    inside = names("m", 2)
    steps = [
        step("a", next=[*inside, "watch"]),
        *map(step, inside),
        step("t", needs=[group()]),
        step("watch", next=[edge("a", when="again")]),
    ]
    again = {"again": lambda names: names["output"] == "again"}
    run = History(workflow(*steps, groups={"g": inside}, fail_fast="never"), again).start()

    run.ok("a").fail("m0").ok("m1")
    broken = run["t"].status
    run.ok("watch", output="again").ok("a").ok("m0").ok("m1").ok("watch").ok("t")

    assert broken == "skipped"
    assert run["t"].status == "completed"


def test_a_member_outside_the_loop_stays_counted():
    steps = [
        step("s", next=["a"]),
        step("out"),
        step("a", next=["in"]),
        step("in"),
        step("t", needs=[group()], next=[edge("a", when="again")]),
    ]
    again = {"again": lambda names: names["output"] == "again"}
    run = History(workflow(*steps, groups={"g": ("out", "in")}), again).start()

    run.ok("s").ok("out").ok("a").ok("in").ok("t", output="again").ok("a").ok("in")

    assert run["t"].status == "ready"
    assert run["out"].visit == 1


# -- cost ------------------------------------------------------------------------------------------------------------


def counted(definition) -> tuple[Counting, History]:
    run = History(definition)
    run.state = Counting(definition)
    run.start()
    run.state.touches = 0
    return run.state, run


@pytest.mark.nightly
def test_a_thousand_steps_that_need_a_thousand_touch_a_few_thousand_places_not_a_million():
    inside, after = names("m", 1000), names("t", 1000)
    steps = [*map(step, inside), *(step(t, needs=[group()]) for t in after)]
    state, run = counted(workflow(*steps, groups={"g": inside}))

    run.ok(*inside)

    assert len(run.queued) == 1000
    assert len(run.facts(e.StepEntered)) == 2000
    # A member: its result and its end. A target: counted once, entered, scheduled.
    assert state.touches < 10 * (len(inside) + len(after))


def test_a_broken_barrier_touches_each_target_a_few_times():
    inside, after = names("m", 1000), names("t", 1000)
    steps = [*map(step, inside), *(step(t, needs=[group()]) for t in after)]
    state, run = counted(workflow(*steps, groups={"g": inside}, fail_fast="never"))

    run.fail("m0")
    at_once = state.touches
    for member in inside[1:]:
        run.fail(member)

    assert len(run.facts(e.StepSkipped)) == 1000
    assert at_once < 5 * len(after)
    assert state.touches - at_once < 10 * len(inside)


def test_an_end_costs_what_it_touches_not_the_size_of_the_run():
    def touched(bystanders: int) -> tuple[int, int]:
        others = [step(f"x{i}") for i in range(bystanders)]
        state, run = counted(workflow(step("a", next=["b"]), step("b"), step("c", needs=["a"]), *others))
        run.ok("a")
        return state.touches, len(run.last)

    assert touched(10) == touched(1000)


def test_a_loop_costs_what_it_puts_back():
    def touched(bystanders: int) -> int:
        others = [step(f"x{i}") for i in range(bystanders)]
        again = {"again": lambda names: names["output"] == "again"}
        definition = workflow(step("a", next=["b"]), step("b", next=[edge("a", when="again")]), *others)
        run = History(definition, again)
        state = run.state = Counting(definition)
        run.start().ok("a")
        state.touches = 0
        run.ok("b", output="again")
        return state.touches

    assert touched(10) == touched(1000)


def test_a_chain_of_thousands_of_skips_is_one_turn():
    chain = [step("s0"), *(step(f"s{i}", needs=[f"s{i - 1}"]) for i in range(1, 5000))]
    run = History(workflow(*chain)).start()

    run.fail("s0")

    assert len(run.facts(e.StepSkipped)) == 4999
    assert run.status == "failed"


# -- a fork that keeps members ---------------------------------------------------------------------------------------


def forked(*kept: tuple[str, str]) -> History:
    """A fork that takes over how these members ended."""
    steps = [*(step(name) for name in ("m0", "m1")), *(step(name, needs=[group()]) for name in ("t0", "t1"))]
    flow = workflow(*steps, groups={"g": ("m0", "m1")}, fail_fast="never")
    return History(flow).start(forked_from=1, kept=tuple(Kept(*one) for one in kept))


def test_a_barrier_whose_members_are_all_kept_is_open_from_the_start():
    run = forked(("m0", "completed"), ("m1", "completed"))

    assert run.queued == ["t0", "t1"]


def test_a_barrier_of_which_some_members_are_kept_waits_for_the_others():
    run = forked(("m0", "completed"))
    assert run.queued == ["m1"]

    assert run.ok("m1").queued == ["t0", "t1"]


def test_a_barrier_that_a_kept_member_has_broken_is_broken_from_the_start():
    run = forked(("m0", "skipped"))

    assert (run.statuses["t0"], run.statuses["t1"], run.queued) == ("skipped", "skipped", ["m1"])
