"""The data of a run: what steps set while they run, when it counts, and who reads it."""

from __future__ import annotations

from typing import Any

from mulligan.core.deciding.rounds.fork import kept_data
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Kept
from mulligan.core.model.run_data import BYTES_MAX, DataValue, name_problem, value_problem
from mulligan.core.model.workflow import Action, Command, Template
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow


def run_of(answers: dict[str, Any] | None = None, data: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(step("a", **fields), step("b", needs=["a"]), data=data or {}), answers).start()


def data(run: History) -> dict[str, Any]:
    return {name: one.value for name, one in run.state.run.data.items()}


def versions(run: History) -> dict[str, int]:
    return {name: one.version for name, one in run.state.run.data.items()}


# -- when it counts --------------------------------------------------------------------------------------------------


def test_data_is_set_when_the_result_of_the_attempt_is_accepted() -> None:
    run = run_of().ok("a", data={"x": 1, "y": [2]})

    assert run.state.run.data == {"x": DataValue(1, 1, "a", 1), "y": DataValue([2], 1, "a", 1)}
    assert [(fact.name, fact.version, fact.value) for fact in run.facts(e.DataSet)] == [("x", 1, 1), ("y", 1, [2])]


def test_every_value_of_a_name_has_the_next_version() -> None:
    run = run_of(data={"x": 0}).ok("a", data={"x": 1}).ok("b", data={"x": 2, "y": 1})

    assert (data(run), versions(run)) == ({"x": 2, "y": 1}, {"x": 3, "y": 1})


def test_an_attempt_that_fails_sets_nothing() -> None:
    run = run_of(rules=retry(1))

    run.report(r.TaskEnded(run.clock, "a", 1, outcome=r.Outcome(exit_code=1), data={"x": 1})).fire_all()

    assert data(run) == {}
    assert data(run.ok("a", data={"x": 2})) == {"x": 2}


def test_a_lost_attempt_that_reports_late_sets_nothing() -> None:
    run = run_of()
    run.lose("a")

    run.report(r.TaskEnded(run.clock, "a", 1, data={"x": 1}))

    assert data(run) == {}
    assert run.facts(e.ReportRefused)
    assert versions(run.ok("a", data={"x": 2})) == {"x": 1}


def test_a_result_that_is_rejected_sets_nothing() -> None:
    condition = expression("output > 0", "output")

    run = run_of({condition.source: lambda names: names["output"] > 0}, validate=condition, rules=retry(1))

    run.ok("a", output=0, data={"x": 1}).fire_all()
    assert data(run) == {}
    run.ok("a", output=1)
    assert data(run) == {}


def test_a_validator_comes_before_the_data_is_set() -> None:
    run = run_of(validator=command("check")).ok("a", data={"x": 1})
    assert data(run) == {}

    run.ok("a.validator@1")
    assert data(run) == {"x": 1}


def test_a_step_that_its_handler_recovers_sets_what_the_handler_sets() -> None:
    run = run_of(on_failure=handler("mend"))

    run.report(r.TaskEnded(run.clock, "a", 1, outcome=r.Outcome(exit_code=1), data={"x": 1}))
    run.ok("a.on_failure@1.0", data={"y": 2})

    assert data(run) == {"y": 2}
    assert run["a"].status == "completed"


def test_a_later_round_keeps_the_data_and_its_versions() -> None:
    run = run_of().ok("a", data={"x": 1}).fail("b").retry("a")

    assert data(run) == {"x": 1}
    assert versions(run.ok("a", data={"x": 5})) == {"x": 2}


def test_data_that_grows_too_large_fails_the_attempt() -> None:
    values = {f"v{number}": "x" * 60_000 for number in range(5)}

    run = run_of().ok("a", data=values)

    failure = run["a"].failure
    assert failure is not None
    assert (failure.code, data(run)) == ("OUTPUT_INVALID", {})
    assert failure.message.endswith(f"the data of the run would have 293KiB, and it has at most {BYTES_MAX >> 10}KiB")


# -- who reads it ----------------------------------------------------------------------------------------------------


def reading(name: str) -> Command:
    return Command(action=Action("shell", {"text": "echo $V"}, {"V": Template((expression("v", name),))}))


def test_a_task_gets_the_data_of_the_moment_in_which_it_is_scheduled() -> None:
    run = run_of(data={"x": 0})
    assert make_task(run.state, "a").data == {"x": 0}

    run.ok("a", data={"x": 1})
    assert make_task(run.state, "b").data == {"x": 1}


def test_expressions_read_it_as_a_part_of_the_run() -> None:
    condition = expression("run.data.x > 0", "run")
    seen: list[Any] = []

    def answer(names: dict[str, Any]) -> bool:
        seen.append(names["run"]["data"])
        return True

    flow = workflow(step("a", next=[edge("b", when=condition)]), step("b"))
    run = History(flow, {condition.source: answer}).start().ok("a", data={"x": 1})

    assert seen == [{"x": 1}]
    assert run["b"].status == "ready"


def test_a_result_that_sets_data_is_not_reused_by_later_runs() -> None:
    run = run_of()

    run.report(r.TaskEnded(run.clock, "a", 1, data={"x": 1}, fingerprint="f"))

    assert run["a"].fingerprint == ""


def test_a_fork_takes_over_what_the_kept_steps_have_set() -> None:
    run = run_of(data={"w": 0}).ok("a", data={"x": 1}).ok("b", data={"y": 2})

    found = kept_data(run.state, [Kept("a", "completed")])
    assert found == {"x": DataValue(1, 1, "a", 1)}

    forked = History(workflow(step("a"), step("b", needs=["a"]), data={"w": 0}))
    forked.start(kept=(Kept("a", "completed"),), data=found)
    assert data(forked) == {"w": 0, "x": 1}


# -- names and values ------------------------------------------------------------------------------------------------


def test_names_are_checked() -> None:
    assert [name for name in ("a", "_x.y-z1", "", "1a", "a b", "a/b", "ä", "x" * 201) if name_problem(name)] == [
        *("", "1a", "a b", "a/b", "ä", "x" * 201)
    ]


def test_values_are_small_and_hold_no_references() -> None:
    assert value_problem({"a": [1, None, "x"]}) == ""
    assert value_problem("x" * 70_000) == "it has 68KiB, and a value has at most 64KiB"
    assert "reserved for artifacts" in value_problem({"$artifact": {}})
