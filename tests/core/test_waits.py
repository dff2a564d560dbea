"""What a run and its steps wait for, in the cases that are easily told wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.run_json import run_json

from mulligan.core.model import reports as r
from mulligan.core.model.events import RunReopened
from mulligan.core.model.workflow import Action, Handler, Map, Need, Resources, Rule, Triage
from mulligan.core.state.state import State
from mulligan.history.obstacles import Obstacle, RunningTask, WorkerCapacity, WorkerPool
from mulligan.history.views import StepCounter, Wait, count_steps, list_waits, waits_for_outside
from mulligan.testing.history import History, command, edge, expression, retry, step, workflow

ASK = Action("approve", {"message": "go?"})
PER_ITEM = Map(over=expression("list"))


def run_of(*steps: Any, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), answers).start()


def of_step(run: History, name: str, held: dict[str, Obstacle] | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run_json(run.state, held)["steps"][name]["waiting_for"]
    return found


def texts(run: History, name: str, held: dict[str, Obstacle] | None = None) -> list[str]:
    return [f"{one['kind']}: {one['text']}" for one in of_step(run, name, held)]


# -- people ----------------------------------------------------------------------------------------------------------


def test_a_person_is_waited_for_whatever_else_is_told_after_that() -> None:
    run = run_of(step("ask", action=ASK), step("later", rules=retry(1, delay=60))).fail("later")

    assert [wait.kind for wait in list_waits(run.state)] == ["approval", "retry"]
    assert waits_for_outside(run.state) is True


def test_a_worker_is_looked_for_whatever_is_asked_before() -> None:
    run = run_of(step("ask", action=ASK), step("ready"))

    assert waits_for_outside(run.state) is False


def test_why_a_run_is_paused_is_told() -> None:
    run = run_of(step("a"))

    run.report(r.PauseRequested(run.clock, by="ann", reason="engine_error"))

    assert [wait.text for wait in list_waits(run.state)] == ["a person to resume the run: engine_error"]
    plain = run_of(step("a")).pause()
    assert [wait.text for wait in list_waits(plain.state)] == ["a person to resume the run"]


@pytest.mark.parametrize(("params", "text"), [({"message": "go?"}, "an approval: go?"), ({}, "an approval")])
def test_an_approval_is_told_with_its_message_if_it_has_one(params: dict[str, Any], text: str) -> None:
    run = run_of(step("ask", action=Action("approve", params)))

    assert texts(run, "ask") == [f"approval: {text}"]


# -- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_that_was_never_told_anything_waits_for_nothing() -> None:
    assert list_waits(State(workflow(step("a")))) == []


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_run_at_its_end_waits_for_nothing_whatever_its_steps_look_like(status: str) -> None:
    run = run_of(step("a"))

    run.state.run.status = status

    assert list_waits(run.state) == []


def test_first_steps_that_nobody_has_come_to_wait_for_their_turn() -> None:
    run = History(workflow(*(step(name) for name in "abc")))
    run.state.graph.starts_at_once = 1

    run.report_once(r.RunRequested(run.clock, run_id=1))

    assert texts(run, "b") == ["entry: its turn to start"]
    assert list_waits(run.state)[-1] == Wait("entry", "its remaining first steps to start")


# -- needs and edges -------------------------------------------------------------------------------------------------


def test_a_group_and_a_step_are_waited_for_together_and_each_once() -> None:
    flow = workflow(
        step("a"),
        step("b"),
        step("c"),
        step("z", needs=["c", "a", Need("ab", is_group=True)]),
        step("y", needs=[Need("ab", is_group=True)]),
        step("x", needs=[Need("ab", is_group=True), Need("bc", is_group=True)]),
        groups={"ab": ("a", "b"), "bc": ("b", "c")},
    )
    run = History(flow).start()

    assert texts(run, "z") == ["needs: 'c', 'a', 'b' to complete"]
    assert texts(run, "y") == ["needs: 'a', 'b' to complete"]
    assert texts(run, "x") == ["needs: 'a', 'b', 'c' to complete"]
    assert [(one["steps"], one["count"]) for one in of_step(run, "x")] == [(["a", "b", "c"], 3)]
    run.ok("a")
    assert texts(run, "y") == ["needs: 'b' to complete"]


def test_each_kind_of_need_is_told_by_what_would_meet_it() -> None:
    needs = [Need("a"), Need("b", "success_or_skipped"), Need("c", "always")]
    run = run_of(step("a"), step("b"), step("c"), step("z", needs=needs))

    assert texts(run, "z") == [
        "needs: 'a' to complete",
        "needs: 'b' to complete or be skipped",
        "needs: 'c' to end",
    ]


def test_an_edge_that_is_dead_is_not_waited_for() -> None:
    flow = workflow(step("a", next=[edge("z", when="never")]), step("b", next=["z"]), step("z"))
    run = History(flow, {"never": False}).start()
    assert texts(run, "z") == ["edges: an edge from 'a', 'b'"]

    run.ok("a")

    assert texts(run, "z") == ["edges: an edge from 'b'"]


# -- items -----------------------------------------------------------------------------------------------------------


def mapped(count: int, **fields: Any) -> History:
    fields.setdefault("do", (command(),))
    return run_of(step("m", map=PER_ITEM, **fields), answers={"list": list(range(count))})


def test_items_are_counted_with_those_that_failed_if_any_did() -> None:
    run = mapped(2)
    assert texts(run, "m")[0] == "items: items: 2 running, 0 not started, 2 in total"

    run.fail("m[0].0")

    assert texts(run, "m")[0] == "items: items: 1 running, 0 not started, 1 failed, 2 in total"


def test_a_map_that_is_to_run_its_failed_items_again_waits_for_that_and_for_no_item() -> None:
    rules = (Rule(codes=("ITEMS_FAILED",), max_retries=1, backoff=retry(1, delay=60)[0].backoff),)
    run = mapped(1, rules=rules)

    run.fail("m[0].0")

    assert run["m"].status == "backing_off"
    assert texts(run, "m") == ["retry: attempt 2, due at 2026-01-01 00:01:00 UTC"]


def test_a_map_whose_result_is_checked_waits_for_the_check_and_for_no_item() -> None:
    run = mapped(1, validator=command("look"))

    run.ok("m[0].0")

    assert texts(run, "m") == ["worker: its validation: a worker for attempt 1"]


def test_of_many_items_those_are_named_that_somebody_works_at() -> None:
    run = mapped(14, do=(command(rules=retry(1, delay=60)),))
    for index in range(12):
        run.fail(f"m[{index}].0")

    found = texts(run, "m")

    assert found[:3] == [
        "items: items: 14 running, 0 not started, 14 in total",
        "worker: a worker for attempt 1",
        "worker: a worker for attempt 1",
    ]
    assert [text.partition(":")[0] for text in found[3:]] == ["retry"] * 8


# -- places ----------------------------------------------------------------------------------------------------------


def test_a_breaker_holds_up_what_waits_for_a_worker_and_nothing_else() -> None:
    run = run_of(step("a"), step("b"), step("c")).started("b")

    held = dict.fromkeys("ab", Obstacle("breaker", "'llm' is open", breaker="llm"))

    assert texts(run, "a", held) == ["breaker: its breaker: 'llm' is open"]
    assert texts(run, "b", held) == ["task: attempt 1 on w1"]
    assert texts(run, "c", held) == ["worker: a worker for attempt 1"]


def test_one_that_lets_no_more_run_at_once_is_waited_for_like_a_worker() -> None:
    run = run_of(step("a"), step("b")).started("b")

    held = {"a": Obstacle("parallel", "'llm' lets no more tasks run at once", breaker="llm")}

    assert texts(run, "a", held) == ["worker: its breaker: 'llm' lets no more tasks run at once"]
    assert not waits_for_outside(run.state, held)


def test_a_step_that_waits_for_a_worker_says_what_is_missing() -> None:
    run = run_of(step("a", resources=Resources(labels=("big",))), step("b"))
    crew = WorkerPool([WorkerCapacity("w1", "h1", cpus=1.0, tasks=(RunningTask(7, "sim"),))])

    waits = {name: run_json(run.state, pool=crew)["steps"][name]["waiting_for"] for name in "ab"}

    assert [(wait["kind"], wait["is_impossible"], wait["text"]) for wait in waits["a"]] == [
        ("worker", True, "a worker for attempt 1 (no worker that is up can run it): no worker has label 'big'")
    ]
    [wait] = waits["b"]
    assert "is_impossible" not in wait
    assert wait["text"] == "a worker for attempt 1: it asks for 1 cpu, and 1 of 1 is in use by run 7 'sim'"
    [obstacle] = wait["obstacles"]
    assert (obstacle["kind"], obstacle["asked"], obstacle["free"]) == ("cpus", 1.0, 0)
    assert obstacle["used_by"] == [{"run_id": 7, "place": "sim", "cpus": 1.0, "memory": 0, "gpus": 0}]


def test_a_step_for_which_a_worker_has_room_says_no_more_than_that_it_waits() -> None:
    run = run_of(step("a"))

    [wait] = run_json(run.state, pool=WorkerPool([WorkerCapacity("w1", "h1", cpus=1.0)]))["steps"]["a"]["waiting_for"]

    assert wait == {"kind": "worker", "text": "a worker for attempt 1", "place": "a", "attempt": 1}


def test_a_step_that_max_parallel_holds_back_says_so_and_names_what_is_under_way() -> None:
    run = run_of(step("a"), step("b"), step("c", needs=["a"]), max_parallel=1)

    assert of_step(run, "b") == [
        {
            "kind": "limit",
            "text": "a free slot: max_parallel is 1, and 'a' is running",
            "place": "b",
            "steps": ["a"],
            "count": 1,
        }
    ]
    assert [wait["kind"] for wait in of_step(run, "c")] == ["needs"]


def test_an_attempt_is_told_with_its_worker_if_that_has_a_name() -> None:
    run = run_of(step("a"), step("b")).started("a", worker="").started("b", worker="w7")

    assert (texts(run, "a"), texts(run, "b")) == (["task: attempt 1"], ["task: attempt 1 on w7"])
    assert (of_step(run, "a")[0].get("worker", ""), of_step(run, "b")[0]["worker"]) == ("", "w7")


def test_what_runs_for_a_step_is_told_in_its_owners_words() -> None:
    rules = (Rule(any=True, recovery_script=command("mend")),)
    run = run_of(
        step("scripted", rules=rules),
        step("handled", on_failure=Handler((command("fix"),))),
        step("told", on_success=(command("tell"),)),
        step("checked", validator=command("look")),
        step("listed", map=Map(lister=command("ls")), do=(command(),)),
    )

    run.fail("scripted").fail("handled").ok("told", "checked")

    worker = "a worker for attempt 1"
    assert texts(run, "scripted")[0] == f"worker: its recovery script: {worker}"
    assert texts(run, "handled") == [f"worker: its handler: {worker}"]
    assert texts(run, "told") == [f"worker: its on_success: {worker}"]
    assert texts(run, "checked") == [f"worker: its validation: {worker}"]
    assert texts(run, "listed") == [f"worker: its list of items: {worker}"]


def test_an_undo_is_told_as_what_the_run_waits_for() -> None:
    run = run_of(step("a", undo=command("unmake")), step("b", needs=["a"])).ok("a").fail("b")

    assert [wait.text for wait in list_waits(run.state)] == ["its undo: a worker for attempt 1"]


def test_what_was_asked_to_end_is_told_as_such() -> None:
    run = run_of(step("a"), step("c", action=Action("workflow", {"file": "c.yaml"}))).started("a")

    run.cancel()

    assert texts(run, "a") == ["task: attempt 1 on w1 (asked to stop)"]
    assert texts(run, "c") == ["child: its child run (asked to stop)"]


@pytest.mark.parametrize(
    ("then", "text"), [("rerun", "'fix' to complete, before it runs again"), ("continue", "'fix' to replace it")]
)
def test_a_failed_step_waits_for_who_may_bring_it_back(then: str, text: str) -> None:
    run = run_of(step("a", next=[edge("fix", "failure", then=then)]), step("fix")).fail("a")

    assert of_step(run, "a") == [{"kind": "repair", "text": text, "place": "a", "steps": ["fix"], "count": 1}]


def test_a_step_that_has_failed_for_good_waits_for_nothing() -> None:
    run = run_of(step("a", next=[edge("fix", "failure")]), step("fix"), step("b")).fail("a").fail("b")

    assert (texts(run, "a"), texts(run, "b")) == ([], [])


def test_a_parked_step_is_told_with_its_failure_and_when_somebody_must_have_come() -> None:
    run = run_of(step("a", triage=Triage(timeout=60))).fail("a", 7)

    [found] = of_step(run, "a")

    assert (found["kind"], found["text"]) == ("triage", "a person to classify EXIT_NONZERO 7")
    assert (found["place"], found["attempt"]) == ("a", 1)
    assert "due" in found


# -- progress --------------------------------------------------------------------------------------------------------


def test_counts_are_kept_by_what_is_new_and_anew_where_many_move_at_once() -> None:
    run = run_of(step("a"), step("b", needs=["a"]), step("c"))
    seen = StepCounter(run.state)
    assert seen.counts == count_steps(run.state)

    run.ok("a")
    seen.update(run.last)
    assert seen.counts == count_steps(run.state)
    assert (seen.counts["completed"], seen.counts["ready"]) == (1, 2)
    run.fail("b").ok("c").retry()
    seen.update(run.last)

    assert seen.counts == count_steps(run.state)


def test_whoever_looks_on_from_the_beginning_counts_what_comes() -> None:
    run = History(workflow(step("a"), step("b")))
    seen = StepCounter(run.state)
    assert set(seen.counts.values()) == {0}

    run.start()
    seen.update(run.last)

    assert seen.counts == count_steps(run.state)
    assert seen.counts["ready"] == 2


def test_a_fact_that_moves_many_steps_is_enough_to_count_them_all_anew() -> None:
    run = run_of(step("a"), step("b")).fail("a").ok("b")
    seen = StepCounter(run.state)

    run.retry()
    seen.update(entry for entry in run.last if isinstance(entry.fact, RunReopened))

    assert seen.counts == count_steps(run.state)
    assert (seen.counts["ready"], seen.counts["failed"]) == (1, 0)
