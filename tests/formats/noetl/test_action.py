"""The action `noetl`: found without a search through installed packages, and loaded only where a file has it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mulligan.core.model.workflow import Action, Expression, Template
from mulligan.errors import LanguageError
from mulligan.language import load_text

WITH_CODE = "mulligan.formats.noetl.runtime:run"
WITHOUT_CODE = "mulligan.formats.noetl.runtime:run_without_code"
# What a program has loaded that has read a file with this step.
LOADED = """
import sys
from mulligan.language import load_text
load_text("name: a\\nsteps:\\n  - " + sys.argv[1])
print("mulligan.formats.noetl.action" in sys.modules, "importlib.metadata" in sys.modules, "jinja2" in sys.modules)
"""


def action(step: str) -> Action:
    (one,) = load_text(f"name: a\nsteps:\n  - {step}").steps
    found = one.action
    assert found is not None
    return found


def test_a_noetl_step_is_an_action_with_values_of_ours():
    found = action('{step: one, noetl: {render: "{{ x }} $${y}", workload: "${run.id}"}}')

    assert found.kind == "noetl"
    assert (found.params["call"], found.params["package"]) == (WITHOUT_CODE, "mulligan")
    assert found.params["args"]["render"] == "{{ x }} ${y}"
    assert [*found.bindings.values()] == [Template((Expression("run.id", ("run",)),))]


@pytest.mark.parametrize(
    ("tool", "call", "waits"),
    [
        ("tool: {kind: postgres, auth: pg, query: select 1}", WITHOUT_CODE, True),
        ("tool: [{kind: http, endpoint: x}, {kind: noop}]", WITHOUT_CODE, True),
        ("tool: {kind: duckdb, query: select 1}", WITHOUT_CODE, False),
        ("tool: {kind: noop}", WITHOUT_CODE, False),
        ("tool: {kind: python, code: result = 1}", WITH_CODE, False),
        ("tool: [{kind: http, endpoint: x}, {kind: Shell, cmds: [ls]}]", WITH_CODE, False),
        ("tool: {kind: http}, cases: [{then: {sink: {tool: python}}}]", WITH_CODE, False),
        ("tool: {kind: http}, cases: [{then: [{sink: {tool: {kind: duckdb}}}]}]", WITHOUT_CODE, False),
    ],
)
def test_a_step_without_code_runs_apart_from_those_with_code(tool: str, call: str, waits: bool) -> None:
    found = action(f"{{step: one, noetl: {{{tool}}}}}")

    assert (found.params["call"], found.params.get("waits", False)) == (call, waits)


def test_a_key_that_it_does_not_have_is_refused():
    with pytest.raises(LanguageError) as refused:
        action("{step: one, noetl: {tols: {kind: noop}}}")

    assert str(refused.value) == (
        "error[language.unknown_key]: <text>:3:25: 'tols' is not a key of 'noetl'\n"
        "  3 |   - {step: one, noetl: {tols: {kind: noop}}}\n"
        "    |                         ^^^^ did you mean 'tool'?"
    )


@pytest.mark.parametrize(
    "said",
    [
        "tool: {kind: shell, cmds: ['echo ${run.id}']}",
        "tool: [{kind: noop}, {kind: duckdb, query: 'select ${run.id}'}]",
        "render: {a: ['${run.id}']}",
        "input: {x: '${run.id}'}",
        "set: {ctx.x: '${run.id}'}",
        "cases: [{when: '${run.id}', then: {}}]",
        "next: {arcs: [{step: a, when: '${run.id}'}]}",
        "derived: {x: '${run.id}'}",
        "defaults: {x: '${run.id}'}",
    ],
)
def test_no_value_is_filled_in_where_the_action_evaluates_a_text(said: str):
    with pytest.raises(LanguageError) as refused:
        action(f"{{step: one, noetl: {{{said}}}}}")

    (problem,) = refused.value.problems
    assert problem.code == "language.plugin"
    assert problem.hint == "pass it under another key; for the characters themselves write '$${'"
    assert action(f"{{step: one, noetl: {{{said.replace('${', '$${')}}}}}").bindings == {}


@pytest.mark.parametrize(
    ("step", "loaded"),
    [("{step: one, noetl: {}}", "True False False"), ("{step: one, shell: 'true'}", "False False False")],
)
def test_it_is_looked_for_only_where_it_stands(step: str, loaded: str):
    said = subprocess.run([sys.executable, "-c", LOADED, step], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == loaded
