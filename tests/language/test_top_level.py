"""The keys of the whole workflow: defaults, end, outputs, secrets, breakers, and the rest."""

from __future__ import annotations

import pytest

from mulligan.core.model.clusters.slurm_profile import SlurmProfile
from mulligan.core.model.workflow import (
    Action,
    Breaker,
    Command,
    Expression,
    Handler,
    Input,
    Resources,
    Rule,
    Secret,
    Step,
    Template,
    decode,
    encode,
)
from mulligan.errors import LanguageError
from mulligan.language import load_text

from .reading import sources, step, steps, workflow

ONE = "\nsteps:\n  - {step: a, shell: make}\n"
MAKE = Action("shell", {"text": "make", "strict": True})


def test_a_small_workflow_has_an_end_and_the_defaults() -> None:
    found = load_text("steps: [{step: a, shell: make}]", "nightly.yaml")

    assert found.name == "nightly"
    assert found.end == Step(name="end", timeout=300.0)
    assert (found.fail_fast, found.timeout, found.cancel_grace) == ("on_critical", None, 10.0)
    assert found.steps == (Step(name="a", action=MAKE),)


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ("fail_fast: always", "fail_fast", "always"),
        ("fail_fast: true", "fail_fast", "always"),
        ("fail_fast: false", "fail_fast", "never"),
        ("timeout: 1h", "timeout", 3600.0),
        ("cancel_grace: 30s", "cancel_grace", 30.0),
        ("cancel_grace: 5", "cancel_grace", 5.0),
        ("cancel_grace: finish", "cancel_grace", None),
        ("name: any name at all", "name", "any name at all"),
        ("description: why", "description", "why"),
        ("files: {mesh: out/mesh.vtk}", "files", {"mesh": "out/mesh.vtk"}),
        ("secrets: {a: {env: A}, b: {file: /b}}", "secrets", {"a": Secret(env="A"), "b": Secret(file="/b")}),
        ("secrets: {c: {command: pass c}}", "secrets", {"c": Secret(command="pass c")}),
        (
            "breakers: {llm: {failures: 3, reset: 1m, ignore: HTTP_4XX, when_open: fail}}",
            "breakers",
            {"llm": Breaker(3, 60.0, ("HTTP_4XX",), "fail")},
        ),
        (
            "slurm: {big: {partition: gpu, walltime: 2-12:00:00, nodes: 2, cpus: 8, memory: 4GiB, tasks: 1}}",
            "slurm",
            {"big": SlurmProfile(partition="gpu", walltime=216_000.0, nodes=2, cpus=8, memory=4 << 30, tasks=1)},
        ),
        (
            "slurm: {default: {walltime: 90m, labels: gpu, setup: module load cuda, options: --exclusive}}",
            "slurm",
            {
                "default": SlurmProfile(
                    walltime=5400.0, labels=("gpu",), setup=("module load cuda",), options=("--exclusive",)
                )
            },
        ),
        ("x-anything: {goes: here}", "description", ""),
    ],
)
def test_a_key_at_the_top_is_a_field_of_the_workflow(written: str, field: str, value: object) -> None:
    assert getattr(workflow(written + ONE), field) == value


def test_inputs_have_types_and_defaults() -> None:
    found = workflow(
        """
        inputs:
          target: {type: string, default: staging, enum: [staging, prod], description: where to}
          count: integer
          bare:
          flags: {type: array, default: [1]}
        steps: [{step: a, shell: make}]
        """
    )

    assert found.inputs == {
        "target": Input("string", "staging", True, ("staging", "prod"), "where to"),
        "count": Input("integer"),
        "bare": Input("string"),
        "flags": Input("array", [1], True),
    }


def test_defaults_hold_where_a_step_says_nothing() -> None:
    found = steps(
        """
        - {step: a, shell: make}
        - {step: b, shell: make, timeout: 1s, capture: text, env: {B: own}, cwd: /b, resources: {cpus: 1}}
        """,
        "defaults: {timeout: 10m, capture: json, env: {A: a, B: b}, cwd: /a, on_lost: fail, resources: {cpus: 4}}",
    )

    assert found["a"] == Step(
        name="a",
        action=MAKE,
        timeout=600.0,
        capture="json",
        env={"A": Template(("a",)), "B": Template(("b",))},
        cwd=Template(("/a",)),
        on_lost="fail",
        resources=Resources(cpus=4.0),
    )
    assert found["b"].timeout == 1.0
    assert found["b"].env == {"A": Template(("a",)), "B": Template(("own",))}
    assert found["b"].resources == Resources(cpus=1.0)


def test_default_resources_are_those_of_steps_and_not_of_what_runs_for_them() -> None:
    found = steps(
        """
        - step: a
          shell: make
          resources: {memory: 2GiB}
          retry: {max_retries: 1, recovery_script: make clean}
          on_failure: [make clean, {shell: make, resources: {cpus: 2}}]
          undo: {shell: make clean}
        """,
        "defaults: {resources: {cpus: 4, memory: 1GiB}}",
    )["a"]

    # Its own are not mixed with the default ones.
    assert found.resources == Resources(memory=2 << 30)
    assert found.rules[0].recovery_script is not None and found.rules[0].recovery_script.resources is None
    assert found.on_failure is not None and found.undo is not None
    assert [command.resources for command in found.on_failure.commands] == [None, Resources(cpus=2.0)]
    assert found.undo.resources is None


@pytest.mark.parametrize("action", ["wait: 1h", "approve: sure?"])
def test_the_default_timeout_is_not_meant_for_waiting(action: str) -> None:
    assert step(action, "defaults: {timeout: 10m}").timeout is None
    assert step(f"{action}\ntimeout: 2h", "defaults: {timeout: 10m}").timeout == 7200.0


def test_values_of_env_that_are_not_text_are_written_as_they_were() -> None:
    found = step("shell: make\nenv: {A: 010, B: true, C: 1.50, D: , E: no}")

    assert {name: sources(template) for name, template in found.env.items()} == {
        "A": ["010"],
        "B": ["true"],
        "C": ["1.50"],
        "D": [""],
        "E": ["no"],
    }


END = Step(
    name="end",
    action=MAKE,
    rules=(Rule(any=True, max_retries=2),),
    on_failure=Handler((Command(action=MAKE),)),
    validate=Expression("output != ''", ("output",)),
    timeout=60.0,
)
END_KEYS = "shell: make, retry: 2, on_failure: make, validate: \"output != ''\", timeout: 1m"


@pytest.mark.parametrize(
    "text",
    [
        f"steps:\n  - {{step: a, shell: make}}\nend: {{{END_KEYS}}}\n",
        f"steps:\n  - {{step: a, shell: make}}\n  - {{step: end, {END_KEYS}}}\n",
    ],
)
def test_the_end_stands_at_the_top_or_among_the_steps(text: str) -> None:
    found = workflow(text)

    assert found.end == END
    assert [each.name for each in found.steps] == ["a"]


def test_the_end_has_five_minutes_and_no_default_retry() -> None:
    found = workflow("defaults: {retry: 5, timeout: 1s, env: {A: b}}\nend: {shell: make}" + ONE)

    assert found.end == Step(name="end", action=MAKE, timeout=300.0, env={"A": Template(("b",))})


def test_outputs_keep_the_types_of_their_values() -> None:
    found = workflow(
        """
        steps: [{step: a, shell: make}]
        outputs:
          text: got ${steps.a.output}
          value: ${steps.a.output}
          number: 3
          nothing:
          nested: {list: [1, "${steps.a.status}"], flag: true}
        """
    )

    assert {name: sources(template) for name, template in found.outputs.items()} == {
        "text": ["got ", "${steps.a.output}"],
        "value": ["${steps.a.output}"],
        "number": ["${3}"],
        "nothing": ["${null}"],
        "nested": ['${{"list": [1, (steps.a.status)], "flag": true}}'],
    }
    assert found.outputs["nested"].reads == ("steps.a",)


def test_undo_is_a_command_that_knows_what_was_put_out() -> None:
    found = step("shell: make\nenv: {A: b}\nundo: {shell: 'rm ${output}', retry: 2}")

    assert found.undo == Command(
        action=Action(
            "shell",
            {"text": 'rm "${_output}"', "strict": True},
            {"_output": Template((Expression("output", ("output",)),))},
        ),
        rules=(Rule(any=True, max_retries=2),),
        timeout=300.0,
        env={"A": Template(("b",))},
    )


def test_a_breaker_and_a_secret_are_used_by_name() -> None:
    found = step(
        "http: {url: 'http://x', headers: {Authorization: 'Bearer ${secrets.token}'}}\nbreaker: api",
        "breakers: {api: {}}\nsecrets: {token: {env: TOKEN}}",
    )

    assert found.breaker == "api"
    assert found.action is not None
    assert found.action.bindings["b0"].reads == ("secrets.token",)


def test_a_workflow_survives_its_journey_as_json() -> None:
    found = workflow(
        """
        inputs: {x: {type: object, default: {a: [1, 2.5, null]}}}
        steps:
          - {step: s, matrix: {i: 1..2}, shell: 'echo ${matrix.i}', retry: {recovery_script: make}}
          - {step: m, needs: [s], map: {over: [1]}, do: [make], next: [{to: fix, on: failure, then: rerun}]}
          - {step: fix, shell: make}
        """
    )

    assert decode(encode(found)) == found


def test_labels_are_texts_for_all_runs() -> None:
    found = workflow("labels: {team: data, app.io/tier: 1}\nsteps: [{step: s, shell: make}]")

    assert found.labels == {"team": "data", "app.io/tier": "1"}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            "{'a b': x}",
            "the name 'a b' in 'labels' may contain only letters, digits, '_', '-', '.' and '/', at most 63",
        ),
        (f"{{a: {'x' * 201}}}", "the label 'a' must be one line of at most 200 characters"),
        (f"{{{', '.join(f'l{n}: x' for n in range(51))}}}", "51 labels are too many: a run has at most 50"),
    ],
)
def test_a_label_that_no_run_could_have_is_refused(labels: str, message: str) -> None:
    with pytest.raises(LanguageError) as refused:
        workflow(f"labels: {labels}\nsteps: [{{step: s, shell: make}}]")

    assert [problem.message for problem in refused.value.problems] == [message]
