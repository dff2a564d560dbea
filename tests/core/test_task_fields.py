"""Fields of a task: what may be lost, where it must run, how large it is, where its logs go."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.effects.tasks import Task, fill_late_values, make_task
from mulligan.core.model.workflow import Action, Command, Handler, Map, Resources, Rule, Secret, Template
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow

SECRET = expression("secrets.token", "secrets.token")
PLAIN = expression("inputs.x", "inputs")


def task_of(key: str, *steps: Any, answers: dict[str, Any] | None = None, **fields: Any) -> Task:
    return make_task(History(workflow(*steps, **fields), answers).start().state, key)


@pytest.mark.parametrize(
    ("resources", "is_small"),
    [
        (None, True),
        (Resources(cpus=1.0), True),
        (Resources(cpus=0.5), True),
        (Resources(cpus=1.5), False),
        (Resources(cpus=2.0), False),
        (Resources(memory=1), False),
        (Resources(gpus=1), False),
        (Resources(labels=("big",)), False),
    ],
)
def test_a_task_is_small_if_it_asks_for_a_processor_and_nothing_else(
    resources: Resources | None, is_small: bool
) -> None:
    assert task_of("a", step("a", resources=resources)).is_small is is_small


def test_an_idempotency_key_has_the_name_that_the_run_has_in_any_store() -> None:
    run = History(workflow(step("a"))).start(uid="u-1")

    assert make_task(run.state, "a").idempotency_key == "u-1:a:1"


@pytest.mark.parametrize(
    ("fields", "is_careful"),
    [
        ({}, False),
        ({"on_lost": "fail"}, True),
        ({"rules": (Rule(codes=("WORKER_LOST",)),)}, True),
        ({"rules": (Rule(any=True), Rule(codes=("TIMEOUT", "WORKER_LOST")))}, True),
        ({"rules": (Rule(codes=("TIMEOUT",)), Rule(any=True))}, False),
    ],
)
def test_what_fails_by_being_lost_is_not_taken_ahead_of_its_time(fields: dict[str, Any], is_careful: bool) -> None:
    assert task_of("a", step("a", **fields)).is_careful is is_careful


def test_a_task_knows_the_paths_that_are_to_lead_to_its_logs() -> None:
    with_logs = step("a", logs={"stdout": Template(("out-", PLAIN)), "stderr": Template(("err",))})

    assert task_of("a", with_logs, answers={"inputs.x": 7}).logs == {"stdout": "out-7", "stderr": "err"}
    # A path is no variable of the shell.
    assert task_of("a", with_logs, answers={"inputs.x": 7}).env == {}
    assert task_of("a", step("a")).logs == {}


def test_what_is_completed_late_has_its_folder_and_its_environment() -> None:
    spec = step("a", cwd=Template(("/srv/", SECRET)), env={"T": Template((SECRET,)), "N": Template((PLAIN,))})
    late = task_of("a", spec, answers={"inputs.x": 7}, secrets={"token": Secret(env="T")})
    assert (late.cwd, late.env) == ("", {})

    found = fill_late_values(late, {"cwd": "/srv/s", "env.T": "s"})

    assert (found.cwd, found.env, found.late, found.bound) == ("/srv/s", {"T": "s", "N": 7}, {}, {})


def test_what_is_completed_late_and_has_no_folder_of_its_own_has_none_then() -> None:
    late = task_of("a", step("a", env={"T": Template((SECRET,))}), secrets={"token": Secret(env="T")})

    assert fill_late_values(late, {"env.T": "s"}).cwd == ""


def test_the_commands_of_an_item_run_where_the_first_of_them_ran() -> None:
    items = step("m", map=Map(over=expression("list")), do=(command("one"), command("two")))
    run = History(workflow(items), {"list": [1, 2]}).start()

    run.started("m[0].0", host="h7").ok("m[0].0").ok("m[1].0")

    assert make_task(run.state, "m[0].1").host == "h7"
    # Nobody knows where that one ran.
    assert (make_task(run.state, "m[1].1").host, run["m[1].1"].index) == ("", 1)


def test_the_first_command_of_an_item_runs_anywhere_also_when_it_is_tried_again() -> None:
    items = step("m", map=Map(over=expression("list")), do=(command("one", rules=retry(1)),))
    run = History(workflow(items), {"list": [1]}).start()

    run.started("m[0].0", host="h7").fail("m[0].0")

    assert (make_task(run.state, "m[0].0").attempt, make_task(run.state, "m[0].0").host) == (2, "")


def test_an_agent_that_mends_is_told_the_failure_also_where_no_edge_has_led() -> None:
    mending = Handler((Command(action=Action("agent", {"prompt": "mend"})),))
    run = History(workflow(step("a", on_failure=mending))).start()

    run.fail("a", 7, stderr_tail="it broke")

    fix = make_task(run.state, "a.on_failure@1.0")
    assert fix.agent_context is not None
    assert fix.context == fix.agent_context.failure_text(1)
    assert "it broke" in fix.context


def test_a_step_beside_one_that_an_edge_led_to_has_no_context() -> None:
    flow = workflow(step("a", next=[edge("fix", "failure")]), step("fix"), step("b"), step("c", needs=["b"]))
    run = History(flow).start().fail("a")

    run.ok("b")

    assert make_task(run.state, "c").context == ""


def test_how_often_the_visit_has_failed_before_is_told() -> None:
    run = History(workflow(step("a", rules=retry(2)))).start()
    first = make_task(run.state, "a").tries

    run.fail("a").fail("a")

    assert (first, make_task(run.state, "a").tries) == (0, 2)


def test_what_a_script_is_told_is_about_the_attempt_and_a_step_is_told_its_own() -> None:
    rules = (Rule(any=True, recovery_script=command("mend")),)
    run = History(workflow(step("a", rules=rules, on_failure=handler()))).start()

    run.fail("a", 9)

    assert (make_task(run.state, "a.script@1").env_attempt, make_task(run.state, "a.script@1").return_code) == (1, 9)


def test_what_holds_of_a_task_where_nothing_is_said() -> None:
    plain = Task(1, "a", 1, "shell", {}, "w", "v", "a", 1)

    assert (plain.role, plain.item, plain.home, plain.cwd, plain.capture) == ("step", None, "", "", "text")
    assert (plain.cpus, plain.gpus, plain.host, plain.context, plain.error_code) == (1.0, 0, "", "", "")
    assert (plain.env_attempt, plain.uid, plain.is_careful, plain.tries) == (0, "", False, 0)
