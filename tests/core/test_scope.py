"""The names that an expression sees and the values that an attempt gets: only those that it reads."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.artifacts import describe_artifact, make_reference
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.workflow import Action, Command, Expression, Handler, Map, Rule, Step, Template
from mulligan.core.state.scope import (
    DecisionContext,
    attempt_number,
    error_view,
    fetch_artifact,
    fill,
    fill_params,
    holes,
    names,
    nearest_failure,
    own_step_view,
    reads_secrets,
    step_view,
)
from mulligan.testing.history import T0, Answers, History, command, edge, expression, handler, retry, step, workflow

PER_ITEM = Map(over=expression("list"), name="pkg")
LARGE = make_reference(describe_artifact("1/a/1/1/output.json", b'"large"', "json"))


def run_of(*steps: Step, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), answers).start({"x": 1})


def seen(run: History, key: str, *reads: str, **extra: Any) -> dict[str, Any]:
    return names(run.state, run[key], reads, extra)


def now(run: History, answers: dict[str, Any] | None = None) -> DecisionContext:
    return DecisionContext(run.state, run.clock, Answers(answers))


# -- names -----------------------------------------------------------------------------------------------------------


def test_only_the_names_that_are_read_are_gathered() -> None:
    run = run_of(step("a"), step("b"), files={"mesh": "m.vtk"})

    assert seen(run, "a") == {}
    assert seen(run, "a", "inputs", "files") == {"inputs": {"x": 1}, "files": {"mesh": "m.vtk"}}
    assert list(seen(run, "a", "steps.b")["steps"]) == ["b"]
    assert list(seen(run, "a", "steps.b", "steps.a")["steps"]) == ["b", "a"]
    assert list(seen(run, "a", "steps.*")["steps"]) == ["a", "b"]


def test_what_is_handed_in_comes_before_what_is_known() -> None:
    run = run_of(step("a"))

    assert seen(run, "a", "output.rows", "inputs", output=7) == {"output": 7, "inputs": {"x": 1}}


def test_a_name_that_nobody_knows_is_left_to_the_evaluator() -> None:
    run = run_of(step("a"))

    assert seen(run, "a", "env.HOME", "secrets.token", "pkg", "index") == {}


def test_outside_of_items_there_are_no_outputs_of_commands() -> None:
    run = run_of(step("a"))

    assert seen(run, "a", "outputs") == {"outputs": []}


def test_inside_an_item_its_name_its_index_and_what_its_commands_gave_are_known() -> None:
    do = (command("one"), command("two", on_failure=handler()))
    run = run_of(step("m", map=PER_ITEM, do=do), answers={"list": ["p", "q"]})

    run.ok("m[1].0", output="gave").fail("m[1].1")

    fix = "m[1].1.on_failure@2.0"
    assert seen(run, fix, "pkg", "index", "outputs") == {"pkg": "q", "index": 1, "outputs": ["gave"]}
    assert seen(run, "m[0].0", "pkg", "index", "item") == {"pkg": "p", "index": 0}
    # The step itself is no item.
    assert seen(run, "m", "pkg", "index") == {}


def test_an_attempt_knows_its_number_and_its_step() -> None:
    run = run_of(step("a"), step("b", rules=retry(1)), answers={})

    run.fail("b")

    assert seen(run, "a", "attempt", "step") == {"attempt": 2, "step": {"name": "a", "number": 1}}
    assert seen(run, "b", "step") == {"step": {"name": "b", "number": 2}}
    assert own_step_view(run.state, run["end"]) == {"name": "end", "number": 3}


def test_an_item_that_is_called_like_a_name_of_ours_is_that_item() -> None:
    run = run_of(step("m", map=Map(over=expression("list"), name="step"), do=(command(),)), answers={"list": ["mine"]})

    assert seen(run, "m[0].0", "step") == {"step": "mine"}


def test_attempts_are_numbered_by_what_they_are_attempts_of() -> None:
    rules = (Rule(any=True, max_retries=1, recovery_script=command("mend")),)
    items = step("m", map=PER_ITEM, do=(command("one"), command("two")))
    run = run_of(step("a", rules=rules), items, answers={"list": [1]})

    run.fail("a").ok("m[0].0")

    # A script is about the attempt that failed; the commands of an item are numbered over the item.
    assert attempt_number(run.state, run["a.script@1"]) == 1
    assert attempt_number(run.state, run["m[0].1"]) == run["m[0]"].attempt + 1


def test_output_is_what_a_check_checks_what_an_undo_undoes_and_what_the_command_before_gave() -> None:
    checked = step("v", validator=command("look"), on_success=(command("tell"),))
    items = step("m", map=PER_ITEM, do=(command("one"), command("two")))
    made = step("u", undo=command("unmake", on_failure=handler()))
    run = run_of(checked, items, made, step("z", needs=["u", "m", "v"]), answers={"list": [1]})

    run.ok("v", output="checked").ok("m[0].0", output="first").ok("u", output="made")
    assert seen(run, "v.validator@1", "output") == {"output": "checked"}
    assert seen(run, "m[0].1", "output") == {"output": "first"}
    run.ok("v.validator@1")
    assert seen(run, "v.on_success@1.0", "output") == {"output": "checked"}
    run.ok("v.on_success@1.0").ok("m[0].1").fail("z").fail("u.undo@1")

    assert seen(run, "u.undo@1.on_failure@1.0", "output") == {"output": "made"}
    assert seen(run, "z", "output") == {"output": None}


# -- steps and runs --------------------------------------------------------------------------------------------------


def test_a_step_is_seen_with_all_that_became_of_it() -> None:
    run = run_of(step("a", on_failure=handler()), step("b", next=[edge("fix", "failure")]), step("fix"), step("c"))

    run.fail("a", 7).ok("a.on_failure@1.0", output="mended").fail("b", 3).ok("fix")

    recovered, sent, untouched = (step_view(run.state, name) for name in "abc")
    assert {**recovered, "failure": None} == {
        "output": "mended",
        "status": "completed",
        "failure": None,
        "visits": 1,
        "attempts": 1,
        "recovered": True,
        "handled": False,
        "warnings": [],
    }
    assert (sent["status"], sent["handled"], sent["recovered"], sent["output"]) == ("failed", True, False, None)
    assert sent["failure"]["exit_code"] == 3
    assert (untouched["status"], untouched["failure"], untouched["handled"]) == ("ready", None, False)


def test_a_failure_that_was_sent_and_is_not_dealt_with_yet_is_not_handled() -> None:
    run = run_of(step("b", next=[edge("fix", "failure")]), step("fix"))

    run.fail("b")

    assert step_view(run.state, "b")["handled"] is False


def test_a_step_in_a_loop_that_reads_itself_reads_its_last_visit_until_it_has_given_something() -> None:
    looping = step("a", next=["b"]), step("b", next=[edge("a", when="more")])
    run = run_of(*looping, answers={"more": True}).ok("a", output=1).ok("b")

    assert step_view(run.state, "a", run["a"])["output"] == 1
    assert (step_view(run.state, "a")["output"], step_view(run.state, "a", run["b"])["output"]) == (None, None)


def test_end_sees_the_whole_run_and_nobody_else_does() -> None:
    last = Step(name="end", action=Action("shell", {"text": "sum up"}))
    run = run_of(step("a", on_failure=handler()), step("b", continue_on_error=True), step("c"), end=last)

    other = seen(run, "a", "run")["run"]
    run.fail("a").ok("a.on_failure@1.0").fail("b").fail("c")
    whole = seen(run, "end", "run")["run"]

    assert other == {"id": 1, "workflow": "test", "round": 1, "data": {}, "workspace": None}
    assert (list(whole["steps"]), whole["stopping"]) == (["a", "b", "c"], None)
    told = [(one["step"], one["visit"], one["handled"], one["recovered"], one["allowed"]) for one in whole["failures"]]
    assert told == [("a", 1, False, True, False), ("b", 1, False, False, True), ("c", 1, False, False, False)]


def test_end_is_told_of_no_failure_that_got_another_chance() -> None:
    last = Step(name="end", action=Action("shell", {"text": "sum up"}))
    run = run_of(step("a"), step("b"), end=last).fail("a").fail("b").ok("end").retry()

    run.ok("a").fail("b", 9)

    failures = seen(run, "end", "run")["run"]["failures"]
    assert [(one["step"], one["exit_code"]) for one in failures] == [("b", 9)]


def test_end_is_told_why_a_run_stops() -> None:
    last = Step(name="end", action=Action("shell", {"text": "sum up"}))
    run = run_of(step("a"), end=last).cancel()

    assert seen(run, "end", "run")["run"]["stopping"] == "cancelled"


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_failure_is_seen_with_its_time_as_text_and_its_causes_as_deep_as_they_go() -> None:
    cause = failure("TIMEOUT", "slow")
    found = failure("CHILD_FAILED", "gone", at=T0, cause=(cause,), handler_failure=failure("HANDLER_FAILED"))

    view = error_view(found)

    assert (view["code"], view["at"], view["timestamp"]) == ("CHILD_FAILED", "2026-01-01T00:00:00Z", view["at"])
    assert [one["code"] for one in view["cause"]] == ["TIMEOUT"]
    assert (view["cause"][0]["at"], view["cause"][0]["timestamp"]) == (None, None)
    assert view["handler_failure"]["code"] == "HANDLER_FAILED"
    assert view["cause"][0]["handler_failure"] is None


def test_where_there_is_no_failure_every_field_is_null() -> None:
    fields = {*Failure.__struct_fields__, "timestamp"} - {"head", "left_out"}

    assert error_view(None) == dict.fromkeys(fields)


def test_a_handler_is_about_the_failure_above_it_and_its_own_retry_about_that_one_too() -> None:
    fixing = Handler((command("fix", rules=retry(1)),))
    run = run_of(step("a", on_failure=fixing)).fail("a", 3).fail("a.on_failure@1.0", 4)

    found = nearest_failure(run.state, run["a.on_failure@1.0"])
    own = nearest_failure(run.state, run["a"])

    assert found is not None and found.exit_code == 3
    assert own is not None and own.exit_code == 3


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        (lambda run: run.cancel(), "the run was cancelled"),
        (lambda run: run.wait(60), "the run took longer than its timeout"),
        (lambda run: run.fail("b", None, code="SECURITY_VIOLATION"), "the run stopped because another step failed"),
    ],
)
def test_a_cleanup_of_what_was_made_to_end_is_about_the_stop(stop: Any, said: str) -> None:
    sweeping = Handler((command("sweep"),), strategy="cleanup")
    run = run_of(step("a", on_failure=sweeping), step("b"), timeout=60).started("a").started("b")

    stop(run)
    run.fail("a", None, signal=15)

    found = nearest_failure(run.state, run["a.on_failure@1.0"])
    assert found is not None
    assert (found.code, found.message, found.step, found.visit, found.attempt) == ("CANCELLED", said, "a", 1, 1)
    assert found.at == run.state.run.at


# -- what may start --------------------------------------------------------------------------------------------------


def test_nothing_starts_below_a_handler_whose_time_is_up() -> None:
    late = Handler((command("fix", on_failure=handler("again")),), timeout=5)
    run = run_of(step("a", on_failure=late), step("b")).fail("a").fail("a.on_failure@1.0")
    inner = run["a.on_failure@1.0.on_failure@1.0"]
    assert now(run).may_start(inner) is True

    run.started(inner.key).wait(5)

    assert now(run).may_start(inner) is False
    assert now(run).may_start(run["b"]) is True


def test_in_a_run_that_stops_only_cleanups_undos_and_end_start() -> None:
    sweeping = Handler((command("sweep", validator=command("look")),), strategy="cleanup")
    mending = Handler((command("mend"),))
    made = step("u", undo=command("unmake", on_failure=handler()))
    run = run_of(made, step("a", on_failure=sweeping), step("b", on_failure=mending), step("c"))
    run.ok("u").fail("a").fail("b").started("c")

    run.cancel()

    may = now(run).may_start
    assert (may(run["end"]), may(run["a.on_failure@1.0"])) == (True, True)
    assert (may(run["c"]), may(run["b"])) == (False, False)
    assert now(run).may_clean_up(run["a"]) is True
    assert (now(run).may_clean_up(run["b"]), now(run).may_clean_up(run["c"])) == (False, False)
    run.ok("a.on_failure@1.0").ok("a.on_failure@1.0.validator@1").fail("c", None, signal=15).fail("u.undo@1")
    # What belongs to an undo may start as well.
    assert now(run).may_start(run["u.undo@1.on_failure@1.0"]) is True


def test_cancel_now_leaves_neither_cleanups_nor_undos() -> None:
    sweeping = Handler((command("sweep"),), strategy="cleanup")
    run = run_of(step("u", undo=command("unmake")), step("a", on_failure=sweeping)).ok("u").started("a")

    run.cancel(now=True)

    assert now(run).may_clean_up(run["a"]) is False
    assert now(run).may_start(run["a"]) is False


# -- values ----------------------------------------------------------------------------------------------------------

SECRET = expression("secrets.token", "secrets.token")
PLAIN = expression("inputs.x", "inputs")


def test_an_attempt_is_given_the_values_of_its_action_its_environment_its_folder_and_its_logs() -> None:
    spec = Command(
        action=Action("shell", {"text": "echo"}, {"v": Template((PLAIN,))}),
        env={"N": Template(("n=", PLAIN))},
        cwd=Template(("/srv/", PLAIN)),
        logs={"stdout": Template(("out-", PLAIN))},
    )
    run = run_of(step("a"))

    assert now(run, {"inputs.x": 7}).bindings(spec, run["a"]) == {
        "v": 7,
        "env.N": "n=7",
        "cwd": "/srv/7",
        "logs.stdout": "out-7",
        # What the paths must stay in.
        "folder.cwd": "/srv/",
        "folder.logs.stdout": "",
    }


def test_what_has_no_values_is_given_none() -> None:
    run = run_of(step("a"))

    assert now(run).bindings(Command(), run["a"]) == {}
    assert now(run).bindings(command(), run["a"]) == {}


def test_plain_text_is_given_as_it_stands() -> None:
    spec = command(env={"A": Template(("text",)), "B": Template(("one", "two"))})
    run = run_of(step("a"))

    assert now(run).bindings(spec, run["a"]) == {"env.A": "text", "env.B": "onetwo"}


def test_a_secret_stays_a_reference_and_what_stands_beside_it_becomes_text() -> None:
    spec = command(env={"A": Template((SECRET,)), "B": Template(("u:", PLAIN, SECRET))})
    run = run_of(step("a"))

    found = now(run, {"inputs.x": {"secret": "x"}}).bindings(spec, run["a"])

    assert found == {
        "env.A": {"${}": [{"secret": "secrets.token"}]},
        "env.B": {"${}": ["u:", "{'secret': 'x'}", {"secret": "secrets.token"}]},
    }


@pytest.mark.parametrize(
    ("reads", "is_secret"), [(("secrets.token",), True), (("inputs", "secrets.a"), True), (("secretsauce",), False)]
)
def test_what_reads_a_secret_is_known_by_its_names(reads: tuple[str, ...], is_secret: bool) -> None:
    assert reads_secrets(Expression("x", reads)) is is_secret


@pytest.mark.parametrize(
    ("kind", "is_fetched"), [("wait", True), ("approve", True), ("shell", False), ("agent", False)]
)
def test_what_is_said_here_is_fetched_and_what_a_worker_says_is_not(kind: str, is_fetched: bool) -> None:
    spec = Command(action=Action(kind, {}, {"v": Template((expression("big", "inputs"),))}))
    run = run_of(step("a"))

    found = now(run, {"big": LARGE, "output": "fetched"}).bindings(spec, run["a"])

    assert found == {"v": "fetched" if is_fetched else LARGE}


def test_only_a_reference_is_fetched_and_it_is_asked_for_by_its_name() -> None:
    evaluator = Answers({"output": lambda read: ("fetched", read)})

    assert fetch_artifact(evaluator, LARGE) == ("fetched", {"output": LARGE})
    assert fetch_artifact(evaluator, {"a": 1}) == {"a": 1}


def test_values_go_into_their_holes_and_are_not_looked_into() -> None:
    params = {"a": {"${}": "x"}, "b": [1, {"${}": "y"}], "c": {"${}": "x", "d": 2}, "e": "${}"}
    values = {"x": {"${}": "y"}, "y": 7}

    found = {"a": {"${}": "y"}, "b": [1, 7], "c": {"${}": "x", "d": 2}, "e": "${}"}
    assert fill(params, values) == found
    assert fill_params(Action("http", params), values) == found
    assert holes(params) == {"x", "y"}
    assert (holes("${}"), holes([]), holes({})) == (frozenset(), frozenset(), frozenset())


# -- a whole matrix --------------------------------------------------------------------------------------------------


def sims(count: int) -> list[Step]:
    return [step(f"sim_{number}", sweep="sim", matrix={"seed": number}) for number in range(1, count + 1)]


def test_a_whole_matrix_is_lists_in_the_order_of_its_combinations() -> None:
    run = run_of(*sims(3), step("b")).ok("sim_3", output={"v": 3}).ok("sim_1", output=1)

    view = seen(run, "b", "steps.sim")["steps"]["sim"]

    assert view == {"output": [1, None, {"v": 3}], "matrix": [{"seed": 1}, {"seed": 2}, {"seed": 3}], "failed": []}


def test_the_failed_steps_of_a_matrix_are_told_with_their_values_and_what_they_failed_with() -> None:
    run = run_of(*sims(3), step("b")).ok("sim_1")
    run.fail("sim_2", code="EXIT_NONZERO", exit_code=7)

    assert seen(run, "b", "steps.sim")["steps"]["sim"]["failed"] == [
        {
            "step": "sim_2",
            "matrix": {"seed": 2},
            "code": "EXIT_NONZERO",
            "message": run["sim_2"].failure.message,
            "exit_code": 7,
            "signal": None,
            "attempts": 1,
            "handled": False,
        }
    ]


def test_all_steps_are_read_without_the_matrices_that_they_belong_to() -> None:
    assert list(seen(run_of(*sims(2)), "sim_1", "steps.*")["steps"]) == ["sim_1", "sim_2"]
