"""The task of a worker: everything that it needs, from the workflow and the run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from mulligan.core.effects.reuse import Reuse
from mulligan.core.effects.tasks import Task, fill_late_values, make_task
from mulligan.core.model import events as e
from mulligan.core.model.failure_context import FAILURE_HEADER
from mulligan.core.model.workflow import Adjust, Handler, Map, Resources, Rule, Secret, Template, Triage
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, step, workflow

from .writing import run_of


def task_of(run: History, key: str) -> Task:
    return make_task(run.state, key)


# -- all of it -------------------------------------------------------------------------------------------------------


def test_a_plain_step_is_told_where_it_belongs_and_what_it_runs():
    run = History(workflow(step("a"))).start(version="v1", cwd="/srv/runs")

    assert task_of(run, "a") == Task(
        run_id=1,
        place="a",
        attempt=1,
        kind="shell",
        params={"text": "a"},
        workflow="test",
        version="v1",
        step="a",
        visit=1,
        home="/srv/runs",
        env_attempt=1,
    )


def test_a_step_with_everything_is_told_everything():
    text = """
        name: release
        inputs: {target: {type: string}}
        files: {mesh: out/mesh.vtk}
        steps:
          - step: build
            shell: make TARGET=${inputs.target}
            stdin: "${inputs.target}!"
            capture: json
            timeout: 30s
            deadline: 5m
            env: {MODE: "m-${inputs.target}"}
            cwd: "work/${inputs.target}"
            writes: [mesh]
            resources: {cpus: 2, memory: 1GiB, gpus: 1, labels: [big]}
    """

    run = run_of(text, target="prod")

    assert task_of(run, "build") == Task(
        run_id=1,
        place="build",
        attempt=1,
        kind="shell",
        params={"text": 'make TARGET="${_inputs_target}"', "strict": True, "stdin": "prod!"},
        workflow="release",
        version="",
        step="build",
        visit=1,
        env={"_inputs_target": "prod", "MODE": "m-prod"},
        cwd="work/prod",
        capture="json",
        timeout=30.0,
        deadline=T0 + timedelta(minutes=5),
        cpus=2,
        memory=2**30,
        gpus=1,
        labels=("big",),
        env_attempt=1,
        files={"mesh": "out/mesh.vtk"},
        folders={"cwd": "work/"},
        reuse=Reuse(definition=task_of(run, "build").reuse.definition),
    )


def test_a_task_survives_being_written_and_read():
    run = run_of("{name: w, steps: [{step: a, shell: 'echo ${run.id}', timeout: 5s}]}")
    wanted = task_of(run, "a")

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(wanted), type=Task) == wanted


# -- values ----------------------------------------------------------------------------------------------------------


def test_what_fills_the_parameters_of_python_is_not_in_its_environment():
    text = """
        name: w
        inputs: {n: {type: integer}}
        steps:
          - step: a
            python: "def main(n): return n"
            args: {n: "${inputs.n}"}
            env: {LEVEL: "${inputs.n}"}
    """

    run = run_of(text, n=3)

    assert task_of(run, "a").params["args"] == {"n": 3}
    assert task_of(run, "a").env == {"LEVEL": 3}


def test_a_value_that_is_fed_to_stdin_is_not_in_the_environment():
    run = run_of("{name: w, inputs: {x: {type: string}}, steps: [{step: a, shell: cat, stdin: '${inputs.x}'}]}", x="v")

    assert task_of(run, "a").params == {"text": "cat", "strict": True, "stdin": "v"}
    assert task_of(run, "a").env == {}


def test_a_secret_stays_a_reference_and_the_values_beside_it_are_told_apart_from_it():
    text = """
        name: w
        inputs: {user: {type: string}}
        secrets: {token: {env: TOKEN}}
        steps:
          - step: a
            shell: "curl -H ${secrets.token} ${inputs.user}"
            env: {WHO: "${inputs.user}:${secrets.token}", LEVEL: "3"}
            stdin: "${secrets.token}"
    """

    run = run_of(text, user="me")

    assert task_of(run, "a").params == {
        "text": 'curl -H "${_secrets_token}" "${_inputs_user}"',
        "strict": True,
        "stdin": {"${}": "b2"},
    }
    assert (task_of(run, "a").env, task_of(run, "a").cwd) == ({}, "")
    assert task_of(run, "a").bound == {"_inputs_user": "me", "env.LEVEL": "3"}
    assert task_of(run, "a").late == {
        "_secrets_token": [{"secret": "secrets.token"}],
        "b2": [{"secret": "secrets.token"}],
        "env.WHO": ["me", ":", {"secret": "secrets.token"}],
    }


def test_every_task_of_a_workflow_with_secrets_knows_where_all_of_them_are():
    text = """
        name: w
        secrets: {token: {env: TOKEN}, other: {env: OTHER}}
        steps: [{step: a, shell: "curl -H ${secrets.token}"}, {step: b, shell: "echo hello"}]
    """

    run = run_of(text)

    everything = {"token": Secret(env="TOKEN"), "other": Secret(env="OTHER")}
    assert [task_of(run, step).secrets for step in "ab"] == [everything, everything]
    assert task_of(run, "b").late == {}


def test_a_task_that_reads_no_secret_has_its_values_filled_in():
    text = """
        name: w
        inputs: {user: {type: string}}
        secrets: {token: {env: TOKEN}}
        steps: [{step: a, shell: "echo ${inputs.user}", env: {WHO: "${inputs.user}"}}]
    """

    run = run_of(text, user="me")

    assert task_of(run, "a").env == {"_inputs_user": "me", "WHO": "me"}
    assert task_of(run, "a").bound == {}


def test_a_secret_in_the_folder_is_late_too():
    spec = step("a", cwd=Template(("/srv/", expression("secrets.place", "secrets.place"))))
    run = History(workflow(spec, secrets={"place": Secret(env="P")})).start()

    assert task_of(run, "a").late == {"cwd": ["/srv/", {"secret": "secrets.place"}]}


@pytest.mark.parametrize("template", ["${inputs.body}", "${inputs.body} ${secrets.token}"])
def test_a_value_that_looks_like_a_reference_names_no_secret(template):
    text = f"""
        name: w
        inputs: {{body: {{type: object}}}}
        secrets: {{token: {{env: TOKEN}}, other: {{env: OTHER}}}}
        steps: [{{step: a, shell: make, env: {{IT: "{template}"}}}}]
    """

    run = run_of(text, body={"secret": "secrets.other"})

    named = [part for parts in task_of(run, "a").late.values() for part in parts if isinstance(part, dict)]
    assert {"secret": "secrets.other"} not in named


def test_an_item_whose_name_begins_like_a_secret_is_none():
    spec = step("a", cwd=Template((expression("secretsauce", "secretsauce"),)))
    run = History(workflow(spec, secrets={"token": Secret(env="T")})).start()

    assert task_of(run, "a").late == {}


def test_a_task_is_completed_by_the_names_of_its_values_whatever_they_look_like():
    text = """
        name: w
        inputs: {body: {type: object}}
        secrets: {token: {env: TOKEN}}
        steps:
          - step: a
            python: "def main(token, body): return token"
            args: {token: "${secrets.token}", body: "${inputs.body}"}
            env: {WHO: "me:${secrets.token}"}
    """
    late = task_of(run_of(text, body={"${}": "env.WHO"}), "a")

    task = fill_late_values(late, dict.fromkeys(late.late, "hunter2"))

    assert task.params["args"] == {"token": "hunter2", "body": {"${}": "env.WHO"}}
    assert task.env == {"WHO": "hunter2"}
    assert (task.late, task.bound) == ({}, {})


# -- what the next attempt gets --------------------------------------------------------------------------------------


def test_an_adjusted_attempt_gets_what_was_adjusted_and_keeps_the_rest():
    growing = Adjust(memory=2.0, cpus=2.0)
    rules = (Rule(codes=("OUT_OF_MEMORY",), max_retries=1, adjust=growing),)
    run = History(workflow(step("a", rules=rules, timeout=9, resources=Resources(cpus=2, memory=100)))).start()

    run.fail("a", exit_code=None, code="OUT_OF_MEMORY")

    assert (task_of(run, "a").attempt, task_of(run, "a").memory, task_of(run, "a").timeout) == (2, 200, 9)
    assert task_of(run, "a").cpus == 4


def test_a_person_may_give_the_next_attempt_more():
    run = History(workflow(step("a", triage=Triage(), timeout=9))).start().fail("a")

    run.classify("a", "retry", memory=512, timeout=60)

    assert (task_of(run, "a").memory, task_of(run, "a").timeout) == (512, 60)


def test_a_step_that_asks_for_no_cpu_gets_none():
    run = History(workflow(step("a", resources=Resources(cpus=0)), step("b"))).start()

    assert (task_of(run, "a").cpus, task_of(run, "b").cpus) == (0, 1)


def test_a_deadline_is_of_the_visit_whatever_the_attempt():
    run = History(workflow(step("a", rules=retry(1, delay=5), deadline=60))).start()

    run.fail("a").wait(5)

    assert (task_of(run, "a").attempt, task_of(run, "a").deadline) == (2, T0 + timedelta(seconds=60))


def test_a_recovery_script_has_the_deadline_of_what_it_is_to_bring_back():
    rules = (Rule(any=True, recovery_script=command("clear")),)
    run = History(workflow(step("a", rules=rules, deadline=60))).start().wait(5).fail("a")

    assert task_of(run, "a.script@1").deadline == T0 + timedelta(seconds=60)


def test_the_idempotency_key_is_the_same_for_every_attempt_and_another_for_every_visit():
    fixed = step("a", rules=retry(1), next=[edge("fix", "failure", then="rerun")])
    run = History(workflow(fixed, step("fix"))).start()
    first = task_of(run, "a").idempotency_key

    run.fail("a")

    assert task_of(run, "a").idempotency_key == first == "1:a:1"
    run.fail("a").ok("fix")
    assert (task_of(run, "a").attempt, task_of(run, "a").idempotency_key) == (3, "1:a:2")


def test_two_runs_places_or_items_never_share_an_idempotency_key():
    flow = workflow(step("m", map=Map(over=expression("list")), do=(command(), command())), step("a"))
    run = History(flow, {"list": [1, 2]}).start().ok("m[1].0")

    keys = [task_of(run, key).idempotency_key for key in ("m[0].0", "m[1].1", "a")]

    assert keys == ["1:m[0].0:1", "1:m[1].1:1", "1:a:1"]


# -- commands --------------------------------------------------------------------------------------------------------


def test_a_recovery_script_is_told_the_attempt_that_failed_and_its_return_code():
    rules = (Rule(exit_codes=(11,), max_retries=2, recovery_script=command("clean")),)
    run = History(workflow(step("a", rules=rules))).start().fail("a", exit_code=11).ok("a.script@1")

    run.fail("a", exit_code=11)

    script = task_of(run, "a.script@2")
    assert (script.step, script.role, script.attempt, script.env_attempt) == ("a", "script", 1, 2)
    assert (script.error_code, script.return_code) == ("EXIT_NONZERO", 11)


def test_a_handler_is_told_the_error_that_it_is_about_also_when_it_is_tried_again():
    fixing = Handler((command("fix", rules=retry(1), validator=command("look")),))
    run = History(workflow(step("a", on_failure=fixing))).start().fail("a", exit_code=3)

    run.fail("a.on_failure@1.0", exit_code=4)

    again = task_of(run, "a.on_failure@1.0")
    assert (again.attempt, again.error_code, again.return_code) == (2, "EXIT_NONZERO", 3)
    run.ok("a.on_failure@1.0")
    # What checks a handler's command is about that command, and that one has failed once.
    assert task_of(run, "a.on_failure@1.0.validator@2").return_code == 4


def test_a_handlers_handler_is_told_of_the_handlers_failure():
    nested = Handler((command("fix", on_failure=handler("again")),))
    run = History(workflow(step("a", on_failure=nested))).start().fail("a", exit_code=3)

    run.fail("a.on_failure@1.0", exit_code=4)

    assert task_of(run, "a.on_failure@1.0.on_failure@1.0").return_code == 4


def test_a_timeout_has_a_code_and_no_return_code():
    run = History(workflow(step("a", on_failure=handler()))).start()

    run.fail("a", exit_code=None, code="TIMEOUT")

    fix = task_of(run, "a.on_failure@1.0")
    assert (fix.error_code, fix.return_code) == ("TIMEOUT", None)


def test_a_step_or_a_command_of_an_item_that_is_tried_again_is_no_handler_and_is_told_no_error():
    flow = workflow(
        step("a", rules=retry(1)),
        step("m", map=Map(over=expression("list")), do=(command(),), rules=retry(1)),
        step("v", rules=retry(1), validator=command("look")),
    )
    run = History(flow, {"list": [1]}).start()

    run.fail("a").fail("m[0].0").fail("v").ok("v")

    assert [task_of(run, key).error_code for key in ("a", "m[0].0", "v.validator@2")] == ["", "", ""]
    assert (task_of(run, "m[0].0").attempt, task_of(run, "m[0].0").return_code) == (2, None)


def test_a_command_of_an_item_is_told_the_item_and_the_steps_visit():
    flow = workflow(
        step("m", map=Map(over=expression("list")), do=(command(on_failure=handler()),), next=[edge("n")]),
        step("n", next=[edge("m", when="more")]),
    )
    run = History(flow, {"list": ["x", "y"], "more": True}).start().ok("m[0].0", "m[1].0", "n")

    again = task_of(run, "m[1].0")

    assert (again.step, again.place, again.item, again.visit, again.role) == ("m", "m[1].0", 1, 2, "do")
    run.fail("m[1].0")
    fix = task_of(run, "m[1].0.on_failure@2.0")
    assert (fix.item, fix.visit, fix.step) == (1, 2, "m")
    assert task_of(run, "m[0].0").item == 0


def test_what_belongs_to_no_item_is_told_none():
    flow = workflow(step("m", map=Map(lister=command("ls")), do=(command(),)), step("a"))
    run = History(flow).start()

    assert [task_of(run, key).item for key in ("m.lister@1", "a")] == [None, None]


def test_an_undo_is_told_its_step_and_gets_its_values():
    text = """
        name: w
        steps:
          - {step: a, shell: make, capture: json, undo: {shell: "unmake ${output.id}"}}
          - {step: b, needs: [a], shell: "false"}
    """
    run = run_of(text).started("a", host="h7").ok("a", output={"id": 7})

    run.fail("b")

    undo = task_of(run, "a.undo@1")
    assert (undo.step, undo.role, undo.env, undo.host) == ("a", "undo", {"_output_id": 7}, "h7")


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_last_command_of_a_handler_that_completes_the_step_owes_the_steps_files():
    fixing = handler("first", "last")
    flow = workflow(step("a", on_failure=fixing, writes=("mesh",)), files={"mesh": "out/mesh.vtk"})
    run = History(flow).start().fail("a")

    first = task_of(run, "a.on_failure@1.0")
    run.ok("a.on_failure@1.0")

    assert (first.files, task_of(run, "a.on_failure@1.1").files) == ({}, {"mesh": "out/mesh.vtk"})


def test_a_handler_before_a_rerun_owes_no_files():
    flow = workflow(step("a", on_failure=handler(rerun=1), writes=("mesh",)), files={"mesh": "m"})
    run = History(flow).start().fail("a")

    assert task_of(run, "a.on_failure@1.0").files == {}


@pytest.mark.parametrize(
    ("strategy", "owed"),
    [("recovery", {"mesh": "m"}), ("fallback", {"mesh": "m"}), ("cleanup", {}), ("custom", {})],
)
def test_a_handler_owes_the_files_of_a_step_that_it_completes(strategy: str, owed: dict[str, str]):
    flow = workflow(step("a", on_failure=handler(strategy=strategy), writes=("mesh",)), files={"mesh": "m"})
    run = History(flow).start().fail("a")

    assert task_of(run, "a.on_failure@1.0").files == owed


def test_a_script_owes_no_files_though_the_step_has_a_handler():
    rules = (Rule(any=True, recovery_script=command("clear")),)
    flow = workflow(step("a", rules=rules, on_failure=handler(), writes=("mesh",)), files={"mesh": "m"})
    run = History(flow).start().fail("a")

    assert task_of(run, "a.script@1").files == {}


# -- hosts -----------------------------------------------------------------------------------------------------------


def test_an_attempt_of_a_step_runs_anywhere_and_so_does_its_retry():
    run = History(workflow(step("a", rules=retry(1)))).start()
    first = task_of(run, "a").host

    run.started("a", host="h1").fail("a")

    assert (first, task_of(run, "a").host) == ("", "")


def test_scripts_handlers_and_checks_run_where_the_attempt_ran():
    rules = (Rule(exit_codes=(11,), max_retries=1, recovery_script=command()),)
    flow = workflow(step("a", rules=rules, on_failure=handler()), step("v", validator=command()))
    run = History(flow).start().started("a", host="h1").started("v", host="h2")

    run.fail("a", exit_code=11).ok("v")
    script = task_of(run, "a.script@1").host
    run.ok("a.script@1").started("a", host="h3").fail("a")

    assert (script, task_of(run, "v.validator@1").host, task_of(run, "a.on_failure@2.0").host) == ("h1", "h2", "h3")


def test_a_rerun_runs_where_its_handler_made_things_right():
    run = History(workflow(step("a", on_failure=handler(rerun=1)))).start().started("a", host="h1").fail("a")

    run.ok("a.on_failure@1.0")

    assert (task_of(run, "a").attempt, task_of(run, "a").host) == (2, "h1")


def test_what_could_not_run_where_it_should_says_so_in_the_log():
    run = History(workflow(step("a", on_failure=handler()))).start().started("a", host="h1").fail("a")

    run.started("a.on_failure@1.0", host="h2")

    started = run.facts(e.AttemptStarted)[-1]
    assert (started.host, started.instead_of) == ("h2", "h1")


def test_a_command_with_any_affinity_runs_anywhere():
    fixing = Handler((command("fix", affinity="any"),))
    run = History(workflow(step("a", on_failure=fixing))).start().started("a", host="h1")

    run.fail("a")

    assert task_of(run, "a.on_failure@1.0").host == ""


def test_the_first_command_of_an_item_runs_anywhere_and_its_handler_where_it_ran():
    flow = workflow(step("m", map=Map(over=expression("list")), do=(command(on_failure=handler()),)))
    run = History(flow, {"list": [1]}).start()
    first = task_of(run, "m[0].0").host

    run.started("m[0].0", host="h4").fail("m[0].0")

    assert (first, task_of(run, "m[0].0.on_failure@1.0").host) == ("", "h4")


# -- context ---------------------------------------------------------------------------------------------------------


def test_only_where_a_failure_edge_led_is_there_a_context_and_its_handler_gets_it_too():
    flow = workflow(
        step("a", next=[edge("fix", "failure"), edge("tell", "always")]),
        step("fix", on_failure=handler()),
        step("tell"),
    )
    run = History(flow).start()
    before = task_of(run, "a").context

    run.fail("a", stderr_tail="it broke")

    assert (before, task_of(run, "tell").context) == ("", "")
    assert task_of(run, "fix").context.startswith(FAILURE_HEADER)
    assert "it broke" in task_of(run, "fix").context
    context = task_of(run, "fix").context
    run.fail("fix")
    assert task_of(run, "fix.on_failure@1.0").context == context


def test_a_step_that_rings_a_bell_gets_the_context_as_well():
    flow = workflow(step("a", next=[edge("page", "failure", handles=False)]), step("page"))
    run = History(flow).start()

    run.fail("a")

    assert task_of(run, "page").context.startswith(FAILURE_HEADER)


# -- nonsense --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["m", "m[0]"])
def test_what_has_nothing_to_run_has_no_task(key: str):
    flow = workflow(step("m", map=Map(over=expression("list")), do=(command(),)))
    run = History(flow, {"list": [1]}).start()

    with pytest.raises(AssertionError, match="has nothing to run"):
        task_of(run, key)


def test_every_kind_of_action_has_its_values_filled_in():
    text = """
        name: w
        inputs: {x: {type: string}}
        steps:
          - {step: h, http: {url: "https://a.example/${inputs.x}", headers: {X: "${inputs.x}"}}}
          - {step: s, sql: {connection: "sqlite:///d.db", query: "select ${inputs.x}"}}
          - {step: g, agent: {provider: claude, prompt: "look at ${inputs.x}"}}
    """

    run = run_of(text, x="v")

    params: dict[str, Any] = {key: task_of(run, key).params for key in ("h", "s", "g")}
    assert params == {
        "h": {"method": "GET", "url": "https://a.example/v", "headers": {"X": "v"}},
        "s": {
            "connection": "sqlite:///d.db",
            "query": "select :mulligan_0",
            "params": {"mulligan_0": "v"},
        },
        "g": {"provider": "claude", "prompt": "look at v"},
    }
    assert [task_of(run, key).env for key in ("h", "s", "g")] == [{}, {}, {}]
