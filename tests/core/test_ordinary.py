"""An ordinary end is one plain function that means what it means at length. What is ordinary, a definition says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mulligan.core import ordinary
from mulligan.core.model import events as e
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import TaskEnded, TaskStarted
from mulligan.core.model.step_plan import plan_of
from mulligan.core.model.workflow import (
    Action,
    Expression,
    Need,
    Resources,
    Rule,
    Step,
    Template,
    Workflow,
    decode,
    encode,
)
from mulligan.core.turn import fold
from mulligan.errors import InputInvalid
from mulligan.testing.history import History, command, edge, expression, retry, shell, step, workflow
from proof.simulator.both_ways import BothWays, WaysDiffer, both_ways, one_way


@pytest.fixture
def compared() -> Iterator[BothWays]:
    """How many turns of this test were taken both ways."""
    with one_way(), both_ways() as counts:
        yield counts


VALUE = Template(("value ", Expression("1")))
CHAIN = workflow(step("a"), step("b", needs=["a"]), step("c", needs=["b"]))
GROUP = workflow(
    step("a"),
    step("b"),
    Step(name="c", action=shell(), needs=(Need("all", is_group=True),)),
    groups={"all": ("a", "b")},
)


@pytest.mark.parametrize(
    ("definition", "order"),
    [
        (CHAIN, "abc"),
        (GROUP, "abc"),
        # Beside each other, and behind both.
        (workflow(step("a"), step("b", needs=["a"]), step("c", needs=["a"]), step("d", needs=["b", "c"])), "abcd"),
        # Edges: without a condition, with one, in a loop, and to a step that is visited for each of them.
        (workflow(step("a", next=["b"]), step("b", next=["c"]), step("c")), "abc"),
        (workflow(step("a", next=["b", edge("c", when=expression("true"))]), step("b"), step("c")), "abc"),
        (workflow(step("a", next=["c"]), step("b", next=["c"]), step("c", join="each")), "abcc"),
        (workflow(step("a", next=["c"]), step("b", next=["c"]), step("c", join="first")), "acb"),
        (workflow(step("a", next=["c"]), step("b", next=["c"]), step("c", join="all")), "abc"),
        # With values: in parameters, in shell text, in the environment, as a folder.
        (
            workflow(
                step("a", action=Action("python", {"args": {"n": {"${}": "n"}}}, {"n": VALUE})),
                step("b", needs=["a"], action=Action("shell", {"text": "echo $_v"}, {"_v": VALUE}), env={"A": VALUE}),
                step("c", needs=["b"], env={"A": VALUE}, cwd=VALUE),
            ),
            "abc",
        ),
        # What is taken back later, what may use so much, what is tried again.
        (workflow(step("a", undo=command()), step("b", needs=["a"], rules=retry(2))), "ab"),
        (workflow(step("a", resources=Resources(memory=100)), step("b", needs=["a"], timeout=9.0)), "ab"),
    ],
)
def test_an_ordinary_end_is_the_same_at_length(compared: BothWays, definition: Workflow, order: str) -> None:
    run = History(definition).start()

    for name in order:
        run.ok(name, usage={"peak_memory": 10})

    assert run.status == "completed"
    assert compared.ends > 0


@pytest.mark.parametrize(
    "definition",
    [
        # The next step waits for a time, is skipped, lacks a value; what is beside it is entered all the same.
        workflow(step("a"), step("b", needs=["a"], action=Action("wait", {"seconds": 5})), step("c", needs=["a"])),
        workflow(step("a"), step("b", needs=["a"], when="false"), step("c", needs=["a"])),
        workflow(step("a"), step("b", needs=["a"], deadline=60.0), step("c", needs=["a"])),
    ],
)
def test_what_is_not_ordinary_goes_at_length_from_there_on(compared: BothWays, definition: Workflow) -> None:
    run = History(definition, {"false": False}).start().ok("a")

    assert compared.ends == 1
    assert run.statuses["c"] == "ready"


def test_a_failure_goes_at_length(compared: BothWays) -> None:
    run = History(workflow(step("a", rules=retry(1)), step("b", needs=["a"]))).start()

    run.fail("a")

    assert compared.ends == 0
    assert (run["a"].attempt, run.statuses) == (2, {"a": "ready", "b": "waiting"})


def starts_at_once(run: History, attempt: int = 1) -> bool:
    return ordinary.may_start_at_once(run.state, TaskStarted(run.clock, "a", attempt, "w1", "h1"))


def test_only_the_first_attempt_of_an_ordinary_step_starts_at_once(compared: BothWays) -> None:
    run = History(CHAIN).start()

    assert starts_at_once(run)
    ordinary.start_step(run.state, run["a"], "w1", "h1", run.clock)
    assert compared.starts == 1
    assert not starts_at_once(run)
    assert not starts_at_once(History(CHAIN).start(), attempt=2)
    assert not starts_at_once(History(workflow(step("a", rules=retry(1)))).start().fail("a"), attempt=2)
    assert not starts_at_once(History(workflow(step("a", deadline=9.0))).start())
    assert not starts_at_once(History(CHAIN).start().pause())
    assert not starts_at_once(History(CHAIN).start().pause_step("a"))


def test_what_cannot_be_decided_leaves_no_gap_in_the_log() -> None:
    odd = edge("b", when=expression("odd"))
    run = History(workflow(step("a", next=[odd]), step("b")), {"odd": InputInvalid("it is odd")}).start()
    entries: list[e.Entry] = list(run.log)

    with one_way(), pytest.raises(InputInvalid):
        ordinary.end_step(run.state, TaskEnded(run.clock, "a", 1), run.evaluator, entries)

    assert [entry.seq for entry in entries] == list(range(1, run.state.run.seq + 1))
    assert type(entries[-1].fact) is e.AttemptSucceeded
    assert fold(run.state.workflow, entries).places == run.state.places


def test_after_a_correction_the_ends_of_unchanged_steps_are_ordinary(compared: BothWays) -> None:
    run = History(CHAIN).start().ok("a").cancel()
    before = compared.ends
    # As it is read from a file, equal and not the same.
    mended = decode(encode(workflow(step("a"), step("b", needs=["a"], timeout=9.0), step("c", needs=["b"]))))

    run.retry_with(mended).ok("b").ok("c")

    assert run.status == "completed"
    assert compared.ends == before + 2
    assert all(run.state.places[name].spec is node.step for name, node in run.state.graph.nodes.items())


def _without_the_last(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda end, targets: real(end, targets[:-1])


def test_the_comparison_finds_an_end_that_means_something_else(
    compared: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordinary, "_enter", _without_the_last(ordinary._enter))
    run = History(workflow(step("a"), step("b", needs=["a"]), step("c", needs=["a"]))).start()

    with pytest.raises(WaysDiffer):
        run.ok("a")


# -- plans -------------------------------------------------------------------------------------------------------------


def test_a_step_that_says_nothing_but_its_action_is_ordinary() -> None:
    assert plan_of(Step(name="a", action=shell())).is_ordinary
    assert plan_of(Step(name="a", action=shell())).has_plain_task


@pytest.mark.parametrize(
    ("fields", "before", "after"),
    [
        ({"action": Action("wait", {"seconds": 1})}, ("action",), ("action",)),
        ({"action": None}, ("action",), ("action",)),
        ({"when": Expression("true")}, ("when",), ()),
        ({"deadline": 1.0}, ("deadline",), ()),
        ({"validate": Expression("true")}, (), ("validate",)),
        ({"on_success": (command(),)}, (), ("on_success",)),
    ],
)
def test_a_plan_names_the_stages_of_a_step(fields: Any, before: tuple[str, ...], after: tuple[str, ...]) -> None:
    plan = plan_of(Step(**{"name": "a", "action": shell(), **fields}))

    assert (plan.before, plan.after) == (before, after)
    assert not plan.is_ordinary


@pytest.mark.parametrize(
    ("fields", "is_plain", "is_careful"),
    [
        ({"timeout": 3.0}, True, False),
        ({"rules": (Rule(codes=("WORKER_LOST",)),)}, True, True),
        ({"on_lost": "fail"}, True, True),
        ({"env": {"A": Template(("b",))}}, True, False),
        ({"action": Action("python", {"args": {"a": {"${}": "a"}}}, {"a": Template(("b",))})}, True, False),
        # Its file may be anywhere, and what it asks for depends on where.
        ({"action": Action("sql", {"query": "x", "database": {"${}": "a"}}, {"a": Template(("b",))})}, False, False),
        ({"action": Action("shell", {"text": "x"}, {"a": Template(("b",))}, {"a": "a"})}, False, False),
        ({"cwd": Template(("b",))}, False, False),
        ({"writes": ("a.txt",)}, False, False),
        ({"breaker": "net"}, False, False),
    ],
)
def test_a_plan_says_whether_a_task_has_anything_of_its_run(fields: Any, is_plain: bool, is_careful: bool) -> None:
    plan = plan_of(Step(**{"name": "a", "action": shell(), **fields}))

    assert (plan.has_plain_task, plan.is_careful) == (is_plain, is_careful)


def test_a_plan_is_made_once_for_a_version() -> None:
    node = Graph(CHAIN).nodes["a"]

    assert node.plan is node.plan
