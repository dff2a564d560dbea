"""A run as `--json` prints it, what it waits for and whom, and how far it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.support.nightly import examples
from tests.support.run_json import run_json

from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model.workflow import Action, Command, Handler, Map, Need, Rule, Step, Template, Triage
from mulligan.core.state.state import State
from mulligan.core.turn import fold
from mulligan.history.obstacles import Obstacle
from mulligan.history.views import NAMES_MAX, StepCounter, Wait, count_steps, list_waits, waits_for_outside
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, step, workflow
from proof.simulator.simulation import Simulation


def at(seconds: float) -> Any:
    return T0 + timedelta(seconds=seconds)


def asking(name: str = "ask", **fields: Any) -> Step:
    return step(name, action=Action("approve", {"message": "ship it?", **fields}))


def of_step(run: History, name: str) -> list[Any]:
    found: list[Any] = run_json(run.state)["steps"][name]["waiting_for"]
    return found


# -- the whole -------------------------------------------------------------------------------------------------------

CALM: dict[str, Any] = {
    "status": "completed",
    "visits": 1,
    "attempts": 1,
    "recovered": False,
    "handled": False,
    "output": None,
    "failure": None,
    "failure_route": None,
    "waiting_for": [],
    "warnings": [],
    "up_to_date_since": None,
    "paused": None,
    "spent": None,
    "budget": None,
    "faked": False,
    "tool_calls": [],
}
END_JSON = {**CALM, "attempts": 0}


def test_a_run_that_went_well():
    outputs = {"made": Template((expression("made", "steps.a"),))}
    run = History(workflow(step("a"), step("b", needs=["a"]), outputs=outputs), {"made": 7}).start()

    run.ok("a", output={"n": 7}).ok("b")

    assert run_json(run.state) == {
        "run_id": 1,
        "status": "completed",
        "degraded": False,
        "round": 1,
        "version": "",
        "revision": None,
        "steps": {"a": {**CALM, "output": {"n": 7}}, "b": CALM},
        "matrices": {},
        "failures": [],
        "outputs": {"made": 7},
        "state": {},
        "data": {},
        "spent": None,
        "budget": None,
        "end": END_JSON,
        "reason": "",
        "workspace": None,
        "waiting_for": [],
    }


FAILURE: dict[str, Any] = {
    "code": "EXIT_NONZERO",
    "message": "exit code 3",
    "severity": "error",
    "retryable": True,
    "exit_code": 3,
    "signal": None,
    "step": "a",
    "item": None,
    "visit": 1,
    "attempt": 2,
    "at": "2026-01-01T00:00:00Z",
    "timestamp": "2026-01-01T00:00:00Z",
    "details": {},
    "trace": "",
    "cause": [],
    "handler_failure": None,
    "exceptions": [],
    "traceback": [],
}


def test_a_failure_that_another_step_handled():
    flow = workflow(step("a", rules=retry(1), next=[edge("b"), edge("fix", "failure")]), step("b"), step("fix"))
    run = History(flow).start()

    run.fail("a").fail("a", exit_code=3).ok("fix", output="mended")

    sent = {"status": "selected", "edge": 1, "to": "fix", "visit": 1, "then": None, "reason": None, "passed": []}
    assert run_json(run.state) == {
        "run_id": 1,
        "status": "completed",
        "degraded": True,
        "round": 1,
        "version": "",
        "revision": None,
        "steps": {
            "a": {
                **CALM,
                "status": "failed",
                "attempts": 2,
                "handled": True,
                "failure": FAILURE,
                "failure_route": sent,
            },
            "b": {**CALM, "status": "skipped", "visits": 0, "attempts": 0},
            "fix": {**CALM, "output": "mended"},
        },
        "matrices": {},
        "failures": [{**FAILURE, "handled": True, "recovered": False, "allowed": False, "failure_route": sent}],
        "outputs": {},
        "state": {},
        "data": {},
        "spent": None,
        "budget": None,
        "end": END_JSON,
        "reason": "",
        "workspace": None,
        "waiting_for": [],
    }


def test_with_its_log_a_route_says_why_the_others_were_not_taken():
    next_ = [
        edge("never", "failure", codes=("TIMEOUT",)),
        edge("fix", "failure", then="rerun"),
        edge("late", "failure"),
    ]
    flow = workflow(step("a", next=next_), step("never"), step("fix"), step("late"))
    run = History(flow).start().fail("a")

    assert run_json(run.state)["steps"]["a"]["failure_route"] == {
        "status": "selected",
        "edge": 1,
        "to": "fix",
        "visit": 1,
        "then": "rerun",
        "reason": None,
        "passed": [
            {"edge": 0, "to": "never", "reason": "codes_do_not_match"},
            {"edge": 2, "to": "late", "reason": "not_first"},
        ],
    }


def test_the_route_of_every_failed_visit_is_kept_when_the_step_has_gone_again():
    run = History(workflow(step("a", next=[edge("fix", "failure", then="rerun")]), step("fix"))).start()

    run.fail("a").ok("fix").ok("a")

    shown = run_json(run.state)
    [failure] = shown["failures"]
    assert shown["steps"]["a"]["failure_route"] is None
    assert (failure["visit"], failure["failure_route"]["to"], failure["failure_route"]["then"]) == (1, "fix", "rerun")


def test_a_failure_that_a_handler_recovered_was_sent_nowhere():
    run = History(workflow(step("a", on_failure=handler()))).start()

    run.fail("a").ok("a.on_failure@1.0")

    [failure] = run_json(run.state)["failures"]
    assert (failure["recovered"], failure["failure_route"]) == (True, None)


def test_a_failure_that_nobody_takes_has_no_route():
    run = History(workflow(step("a"))).start().fail("a")

    route = {
        "status": "no_route",
        "edge": None,
        "to": None,
        "visit": None,
        "then": None,
        "reason": "no_edge",
        "passed": [],
    }
    assert run_json(run.state)["steps"]["a"]["failure_route"] == route


def test_with_its_log_a_step_that_was_stopped_while_it_climbed_says_so():
    run = History(workflow(step("a", rules=retry(1, delay=60)))).start().fail("a")

    run.cancel(reason="enough")

    shown = run_json(run.state)
    assert (shown["status"], shown["reason"]) == ("cancelled", "enough")
    assert shown["steps"]["a"]["failure_route"]["status"] == "skipped_terminal"


def test_attempts_are_counted_over_all_visits_and_rounds():
    flow = workflow(step("a", rules=retry(1), next=[edge("fix", "failure", then="rerun")]), step("fix"))
    run = History(flow).start()

    run.fail("a").fail("a").ok("fix").ok("a")

    shown = run_json(run.state)["steps"]["a"]
    assert (shown["visits"], shown["attempts"], shown["status"]) == (2, 3, "completed")


def test_a_recovered_step_says_so_and_a_warning_is_shown():
    run = History(workflow(step("a", on_failure=handler()), step("w"))).start()

    run.fail("a").ok("a.on_failure@1.0", output="saved")
    run.fail("w", exit_code=0, reported=({"code": "SLOW", "severity": "warning", "message": "slow"},))

    shown = run_json(run.state)
    assert (shown["steps"]["a"]["recovered"], shown["steps"]["a"]["output"]) == (True, "saved")
    assert [warning["code"] for warning in shown["steps"]["w"]["warnings"]] == ["SLOW"]
    assert shown["degraded"] is True


def test_an_end_of_ones_own_is_shown_with_what_it_said():
    end = Step(name="end", action=Action("shell", {"text": "report"}))
    run = History(workflow(step("a"), end=end)).start().ok("a")

    run.ok("end", output={"status": "failed", "reason": "not good enough"})

    shown = run_json(run.state)
    assert (shown["status"], shown["reason"]) == ("failed", "not good enough")
    assert shown["end"] == {**CALM, "output": {"status": "failed", "reason": "not good enough"}}


def test_a_run_that_has_not_had_its_first_turn_is_running_and_has_no_steps():
    shown = run_json(State(workflow(step("a"))))

    assert shown == {
        "run_id": 0,
        "status": "running",
        "degraded": False,
        "round": 1,
        "version": "",
        "revision": None,
        "steps": {},
        "matrices": {},
        "failures": [],
        "outputs": {},
        "state": {},
        "data": {},
        "spent": None,
        "budget": None,
        "end": None,
        "reason": "",
        "workspace": None,
        "waiting_for": [],
    }


@pytest.mark.parametrize("seed", range(examples(4, 20)))
def test_any_run_can_be_shown_as_json_and_its_counts_are_those_of_its_steps(seed: int):
    history = Simulation(seed).run()
    state = fold(history.workflow, history.log)

    shown = run_json(state)

    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown
    assert list(shown["steps"]) == [one.name for one in state.workflow.steps]
    assert shown["waiting_for"] == []


# -- what a step waits for -------------------------------------------------------------------------------------------


def test_a_step_waits_for_its_needs_by_name():
    needs = ["a", Need("b", "success_or_skipped"), Need("c", "always"), "d"]
    run = History(workflow(*map(step, "abcd"), step("z", needs=needs))).start()

    run.ok("d")

    assert of_step(run, "z") == [
        {"kind": "needs", "text": "'a' to complete", "place": "z", "steps": ["a"], "count": 1},
        {"kind": "needs", "text": "'b' to complete or be skipped", "place": "z", "steps": ["b"], "count": 1},
        {"kind": "needs", "text": "'c' to end", "place": "z", "steps": ["c"], "count": 1},
    ]


def test_a_step_that_waits_for_thousands_names_the_first():
    names = tuple(f"s{i}" for i in range(1000))
    flow = workflow(*map(step, names), step("z", needs=[Need("g", is_group=True)]), groups={"g": names})
    run = History(flow).start().ok("s0")

    [found] = of_step(run, "z")

    assert (found["count"], found["steps"]) == (999, [f"s{i}" for i in range(1, NAMES_MAX + 1)])
    assert found["text"].endswith(", 's10' and 989 more to complete")


def test_a_step_waits_for_the_edges_that_are_open():
    flow = workflow(step("a", next=["z"]), step("b", next=["z"]), step("c", next=["z"]), step("z"))
    run = History(flow).start()

    run.ok("b")

    text = "an edge from 'a', 'c'"
    assert of_step(run, "z") == [{"kind": "edges", "text": text, "place": "z", "steps": ["a", "c"], "count": 2}]


def test_a_step_waits_for_a_worker_and_then_for_its_attempt():
    run = History(workflow(step("a"))).start()
    before = of_step(run, "a")

    run.started("a", worker="w7")

    assert before == [{"kind": "worker", "text": "a worker for attempt 1", "place": "a", "attempt": 1}]
    assert of_step(run, "a") == [
        {"kind": "task", "text": "attempt 1 on w7", "place": "a", "attempt": 1, "worker": "w7"}
    ]
    run.cancel()
    assert of_step(run, "a")[0]["text"] == "attempt 1 on w7 (asked to stop)"


def test_a_step_that_backs_off_waits_for_its_delay_and_its_recovery_script():
    script = Rule(any=True, max_retries=1, recovery_script=command("clean"), backoff=retry(1, delay=5)[0].backoff)
    run = History(workflow(step("a", rules=(script,)))).start()

    run.fail("a")

    due = {
        "kind": "retry",
        "text": "attempt 2, due at 2026-01-01 00:00:05 UTC",
        "place": "a",
        "attempt": 2,
        "due": "2026-01-01T00:00:05Z",
    }
    text = "its recovery script: a worker for attempt 1"
    clean = {"kind": "worker", "text": text, "place": "a.script@1", "attempt": 1}
    assert of_step(run, "a") == [clean, due]
    run.ok("a.script@1")
    assert of_step(run, "a") == [due]


def test_a_step_that_is_handled_waits_for_the_innermost_command():
    nested = Handler((command("fix", on_failure=handler("again")),))
    run = History(workflow(step("a", on_failure=nested))).start()

    run.fail("a").fail("a.on_failure@1.0")

    place = "a.on_failure@1.0.on_failure@1.0"
    text = "its handler: a worker for attempt 1"
    assert of_step(run, "a") == [{"kind": "worker", "text": text, "place": place, "attempt": 1}]


def test_a_parked_step_waits_for_a_person_to_say_what_its_failure_is():
    run = History(workflow(step("a", triage=Triage(timeout=60)))).start()

    run.fail("a", exit_code=9, stderr_tail="no such table\n")

    assert of_step(run, "a") == [
        {
            "kind": "triage",
            "text": "a person to classify EXIT_NONZERO 9: no such table",
            "place": "a",
            "attempt": 1,
            "due": "2026-01-01T00:01:00Z",
        }
    ]


def test_an_approval_a_wait_and_a_child_run_are_waited_for():
    flow = workflow(
        asking(timeout=30),
        step("nap", action=Action("wait", {"seconds": 10})),
        step("child", action=Action("workflow", {"file": "c.yaml"}), timeout=60),
    )
    run = History(flow).start()

    assert [of_step(run, name) for name in ("ask", "nap", "child")] == [
        [
            {
                "kind": "approval",
                "text": "an approval: ship it?",
                "place": "ask",
                "attempt": 1,
                "due": "2026-01-01T00:00:30Z",
            }
        ],
        [
            {
                "kind": "timer",
                "text": "its timer, due at 2026-01-01 00:00:10 UTC",
                "place": "nap",
                "attempt": 1,
                "due": "2026-01-01T00:00:10Z",
            }
        ],
        [
            {
                "kind": "child",
                "text": "its child run",
                "place": "child",
                "attempt": 1,
                "due": "2026-01-01T00:01:00Z",
            }
        ],
    ]


def test_a_map_waits_for_its_items_and_names_some_of_what_runs():
    policy = Map(over=expression("list"), max_parallel=2, on_item_failure="collect")
    run = History(workflow(step("m", map=policy, do=(command(),))), {"list": list(range(5))}).start()

    run.fail("m[0].0").started("m[2].0")

    assert of_step(run, "m") == [
        {
            "kind": "items",
            "text": "items: 2 running, 2 not started, 1 failed, 5 in total",
            "place": "m",
            "attempt": 1,
            "count": 4,
        },
        {"kind": "worker", "text": "a worker for attempt 1", "place": "m[1].0", "attempt": 1, "name": "m[1]"},
        {"kind": "task", "text": "attempt 1 on w1", "place": "m[2].0", "attempt": 1, "worker": "w1", "name": "m[2]"},
    ]


def test_a_map_names_all_that_a_person_must_do_and_few_of_the_rest():
    asks = Command(action=Action("approve", {"message": "?"}))
    flow = workflow(
        step("m", map=Map(over=expression("list")), do=(asks,)),
        step("n", map=Map(over=expression("list")), do=(command(),)),
    )
    run = History(flow, {"list": list(range(50))}).start()

    assert [wait["kind"] for wait in of_step(run, "m")] == ["items"] + 50 * ["approval"]
    assert [wait["kind"] for wait in of_step(run, "n")] == ["items"] + NAMES_MAX * ["worker"]


def test_a_step_that_lists_its_items_waits_for_that():
    run = History(workflow(step("m", map=Map(lister=command("ls")), do=(command(),)))).start()

    assert [wait["place"] for wait in of_step(run, "m")] == ["m.lister@1"]


@pytest.mark.parametrize(
    ("then", "text"), [("rerun", "'fix' to complete, before it runs again"), ("continue", "'fix' to replace it")]
)
def test_a_failed_step_that_may_come_back_waits_for_its_remediation(then: Any, text: str):
    run = History(workflow(step("a", next=[edge("fix", "failure", then=then)]), step("fix"))).start()

    run.fail("a")

    assert of_step(run, "a") == [{"kind": "repair", "text": text, "place": "a", "steps": ["fix"], "count": 1}]
    run.fail("fix")
    assert of_step(run, "a") == []


def test_end_waits_for_everything_else():
    run = History(workflow(step("a"))).start()

    expected = [{"kind": "all", "text": "all other steps to end", "place": "end"}]
    assert run_json(run.state)["end"]["waiting_for"] == expected


# -- what the run waits for ------------------------------------------------------------------------------------------


def test_a_run_waits_for_what_its_active_steps_wait_for():
    flow = workflow(step("a"), asking(), step("z", needs=["a"]))
    run = History(flow).start().started("a")

    assert list_waits(run.state) == [
        Wait("task", "attempt 1 on w1", "a", 1, worker="w1"),
        Wait("approval", "an approval: ship it?", "ask", 1),
    ]
    assert waits_for_outside(run.state) is False


def test_when_all_else_has_ended_only_a_person_can_move_the_run():
    run = History(workflow(step("a"), asking())).start()

    run.ok("a")

    assert waits_for_outside(run.state) is True
    run.approve("ask")
    assert (run.status, waits_for_outside(run.state)) == ("completed", False)


def test_times_do_not_count_as_somebody_who_moves_the_run():
    run = History(workflow(step("a", rules=retry(1, delay=60)), asking())).start()

    run.fail("a")

    assert list_waits(run.state)[0] == Wait("retry", "attempt 2, due at 2026-01-01 00:01:00 UTC", "a", 2, at(60))
    assert waits_for_outside(run.state) is True


def test_a_run_that_only_waits_for_time_waits_for_nobody():
    run = History(workflow(step("a", rules=retry(1, delay=60)))).start().fail("a")

    assert waits_for_outside(run.state) is False


def test_a_child_run_may_still_move():
    flow = workflow(step("c", action=Action("workflow", {"file": "c.yaml"})), asking())
    run = History(flow).start()

    assert waits_for_outside(run.state) is False
    run.child_ended("c")
    assert waits_for_outside(run.state) is True


def test_a_paused_run_waits_for_a_person_once_nothing_runs():
    run = History(workflow(step("a"), step("b", needs=["a"]))).start().started("a").pause()
    while_running = waits_for_outside(run.state)

    run.ok("a")

    assert (while_running, waits_for_outside(run.state)) == (False, True)
    assert list_waits(run.state) == [Wait("pause", "a person to resume the run")]
    assert of_step(run, "b") == [{"kind": "pause", "text": "a person to resume the run", "place": "b", "attempt": 1}]
    run.resume()
    assert waits_for_outside(run.state) is False


def test_a_map_whose_items_all_ask_is_stuck_and_one_with_work_behind_them_is_not():
    asks = Action("approve", {"message": "?"})
    slow = (Command(action=asks, rules=retry(1, delay=60)), command())
    policy = Map(over=expression("list"), max_parallel=40)
    run = History(workflow(step("m", map=policy, do=slow)), {"list": list(range(30))}).start()
    before = waits_for_outside(run.state)

    run.approve("m[29].0")

    assert (before, waits_for_outside(run.state)) == (True, False)
    run.ok("m[29].1")
    assert waits_for_outside(run.state) is True


def test_an_undo_and_a_loop_are_waited_for_by_the_run():
    looping = edge("a", when="more", backoff=retry(1, delay=9)[0].backoff)
    flow = workflow(step("a", next=["b"]), step("b", next=[looping]))
    run = History(flow, {"more": True}).start().ok("a", "b")
    undoing = History(workflow(step("u", undo=command("un")), step("f", needs=["u"]))).start().ok("u").fail("f")

    expected = Wait("loop", "the loop back to 'a', due at 2026-01-01 00:00:09 UTC", "b", due=at(9))
    assert list_waits(run.state) == [expected]
    assert list_waits(undoing.state) == [Wait("worker", "its undo: a worker for attempt 1", "u.undo@1", 1)]


def test_a_run_that_has_ended_waits_for_nothing():
    run = History(workflow(step("a"))).start().fail("a")

    assert (list_waits(run.state), waits_for_outside(run.state)) == ([], False)


class Watched(Simulation):
    """A random history in which, after every turn, everything that has not ended says what it waits for."""

    def look(self) -> None:
        super().look()
        for watched in self.world.checker.runs.values():
            if watched.log and watched.state.run.status in ("running", "paused"):
                expect_waits(watched.state)


def expect_waits(state: State) -> None:
    shown = run_json(state)
    assert shown["waiting_for"]
    silent = [name for name, one in shown["steps"].items() if not one["waiting_for"]]
    assert [name for name in silent if not state.places[name].has_ended] == []


@pytest.mark.parametrize("seed", range(examples(4, 30)))
def test_whatever_happens_a_run_and_its_steps_say_what_they_wait_for(seed: int):
    history = Watched(seed).run()

    assert list_waits(history.state) == []


# -- how far it is ---------------------------------------------------------------------------------------------------


def test_steps_are_counted_by_status():
    flow = workflow(step("a"), step("b"), step("c", needs=["a"]), step("d", rules=retry(1, delay=5)))
    run = History(flow).start().ok("b").fail("d")

    assert count_steps(run.state) == {
        "waiting": 1,
        "ready": 1,
        "running": 0,
        "backing_off": 1,
        "handling": 0,
        "pending_failed": 0,
        "completed": 1,
        "failed": 0,
        "skipped": 0,
        "cancelled": 0,
    }


def test_a_run_that_has_not_started_counts_nothing():
    assert set(count_steps(State(workflow(step("a")))).values()) == {0}


@pytest.mark.parametrize("seed", range(examples(4, 20)))
def test_counts_that_are_kept_up_to_date_are_those_of_a_recount(seed: int):
    history = Simulation(seed).run()
    log = history.log
    state = State(history.workflow)
    kept = StepCounter(state)

    for start in range(0, len(log), 3):
        turn = log[start : start + 3]
        for entry in turn:
            evolve(state, entry)
        kept.update(turn)

        assert kept.counts == count_steps(state)


def test_what_a_breaker_holds_up_waits_for_that_and_for_no_worker():
    run = History(workflow(step("a"), step("b"))).start()

    obstacle = Obstacle("breaker", "breaker 'llm' is open until noon", breaker="llm", until=T0)
    shown = run_json(run.state, {"a": obstacle})

    waits = {name: shown["steps"][name]["waiting_for"] for name in ("a", "b")}
    text = "its breaker: breaker 'llm' is open until noon"
    told = {"kind": "breaker", "text": obstacle.text, "breaker": "llm", "until": "2026-01-01T00:00:00Z"}
    due = {"due": "2026-01-01T00:00:00Z", "obstacles": [told]}
    assert waits["a"] == [{"kind": "breaker", "text": text, "place": "a", "attempt": 1, **due}]
    assert [wait["kind"] for wait in waits["b"]] == ["worker"]
    assert [wait["kind"] for wait in shown["waiting_for"]] == ["breaker", "worker"]


def test_a_breaker_that_holds_a_step_up_does_not_count_as_somebody_who_moves_the_run():
    run = History(workflow(step("a"), asking())).start()

    held = {"a": Obstacle("breaker", "breaker 'llm' is open until noon", breaker="llm")}

    assert (waits_for_outside(run.state), waits_for_outside(run.state, held)) == (False, True)
