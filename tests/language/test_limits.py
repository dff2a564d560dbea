"""Large and hostile files: bounded in time and memory; and what a start costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mulligan.errors import LanguageError
from mulligan.language import load_text

from .reading import refusal, workflow


@pytest.mark.nightly
def test_steps_by_the_thousand_with_reads_across_are_checked() -> None:
    steps = ["  - {step: s0, shell: make}"]
    steps += [
        f"  - {{step: s{i}, needs: [s{i - 1}], shell: 'echo ${{steps.s{i // 2}.output}}'}}" for i in range(1, 3000)
    ]

    found = load_text("steps:\n" + "\n".join(steps))

    assert len(found.steps) == 3000


def test_handlers_that_double_at_each_use_are_refused_before_they_fill_the_memory() -> None:
    levels = 30
    doubling = [
        f"  h{i}: [{{shell: make, on_failure: {{use: h{i + 1}}}}}, {{shell: make, on_failure: {{use: h{i + 1}}}}}]"
        for i in range(levels)
    ]
    text = (
        "handlers:\n"
        + "\n".join(doubling)
        + f"\n  h{levels}: make\nsteps:\n  - {{step: a, shell: make, on_failure: {{use: h0}}}}\n"
    )

    with pytest.raises(LanguageError) as caught:
        load_text(text, "w.yaml")

    assert caught.value.problems[0].message == "handler 'h8' is used too often inside others"


@pytest.mark.parametrize("depth", [10, 70])
def test_handlers_nest_as_deep_as_a_file_may(depth: int) -> None:
    text = "make"
    for _ in range(depth):
        text = f"{{shell: make, on_failure: {text}}}"

    assert load_text(f"steps: [{{step: a, shell: make, on_failure: {text}}}]").steps


def test_a_start_loads_neither_faces_nor_engines() -> None:
    code = (
        "import sys, mulligan.language as language\n"
        "language.load_text('steps: [{step: a, shell: make}]')\n"
        "heavy = {'rich', 'typer', 'jsonschema', 'cel_expr_python', 'cel', 'asyncio', 'mulligan.language.schema'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_a_pattern_of_names_is_no_way_to_run_code() -> None:
    with pytest.raises(LanguageError) as caught:
        load_text("steps: [{step: 's_{i.__class__}', shell: make, matrix: {i: [1]}}]", "w.yaml")

    assert caught.value.problems[0].message == "the matrix has no value 'i.__class__'"


def test_a_format_cannot_ask_for_a_gigabyte() -> None:
    with pytest.raises(LanguageError) as caught:
        load_text("steps: [{step: 's_{i:999999999d}', shell: make, matrix: {i: [1]}}]", "w.yaml")

    assert caught.value.problems[0].message == "'999999999d' is not a number format"


def test_a_file_with_hundreds_of_typos_is_refused_without_comparing_them_all() -> None:
    good = "".join(f"  - {{step: build_{i}, shell: make}}\n" for i in range(300))
    bad = "".join(f"  - {{step: test_{i}, shell: make, needs: [biuld_{i}]}}\n" for i in range(300))

    with pytest.raises(LanguageError) as caught:
        load_text("steps:\n" + good + bad, "w.yaml")

    assert len(caught.value.problems) == 100
    assert caught.value.problems[7].hint == "did you mean 'build_7'?"


def test_shell_text_nested_without_end_is_refused_as_shell_text() -> None:
    assert (
        refusal("steps: [{step: a, shell: '" + "${x:-" * 3000 + "'}]") == "the shell text is nested more than 64 deep"
    )


def test_a_query_with_thousands_of_values_is_read_in_one_pass() -> None:
    rows = "insert into t values (${inputs.x}, 'it''s');\n      " * 5000

    found = workflow(
        f"inputs: {{x: string}}\nsteps:\n- step: a\n  sql:\n    connection: 'sqlite://'\n    query: |\n      {rows}"
    )

    assert len(found.steps[0].action.params["params"]) == 5000
