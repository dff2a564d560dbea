"""What the names of an expression have: fields that exist are read, wherever they may stand."""

from __future__ import annotations

import pytest

from .reading import step, workflow

ERROR = (
    "code message severity retryable exit_code signal step item visit attempt at timestamp details trace cause "
    "handler_failure"
).split()


@pytest.mark.parametrize("field", ERROR)
def test_a_handler_reads_every_field_of_its_error(field: str) -> None:
    found = step(f"shell: make\non_failure: 'echo ${{error.{field}}}'")

    assert found.on_failure
    assert found.on_failure.commands[0].action.bindings[f"_error_{field}"].reads == ("error",)


@pytest.mark.parametrize("field", [*ERROR, "context", "handler_failure.code"])
def test_any_step_may_ask_for_the_failure_that_led_to_it(field: str) -> None:
    found = step(f"shell: make\nwhen: failure.{field} == null")

    assert found.when.reads == ("failure",)


def test_what_a_details_map_holds_is_the_steps_own_affair() -> None:
    found = step("shell: make\nwhen: failure.details.anything.at_all == 1")

    assert found.when.reads == ("failure",)


@pytest.mark.parametrize("field", ["id", "workflow", "round"])
def test_any_step_knows_its_run(field: str) -> None:
    assert step(f"shell: make\nwhen: run.{field} != null").when.reads == ("run",)


@pytest.mark.parametrize("field", ["steps", "failures", "stopping", "steps.a.failure.timestamp", "id"])
def test_the_end_looks_back_on_the_whole_run(field: str) -> None:
    found = workflow(f"steps: [{{step: a, shell: make}}]\noutputs: {{x: '${{run.{field}}}'}}")

    assert found.outputs["x"].reads == ("run",)
