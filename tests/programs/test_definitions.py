"""The definitions that a program's process makes of the steps that it calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan import Retry, flow, program, step
from mulligan.errors import LanguageError
from mulligan.flows.recording import Recorder
from mulligan.programs import definitions
from mulligan.programs.failures import failure_of

from .rehearsed import rehearse
from .steps_of_programs import add, fail

ROOT = Path(__file__).parents[2]


@step
def no_arguments() -> None: ...


@step(requirements=["httpx"])
def with_packages() -> None: ...


@pytest.mark.parametrize("called", [add, fail, no_arguments], ids=lambda called: called.name)
def test_a_step_without_keys_is_defined_as_the_language_reads_it(called: Any):
    recorder = Recorder("program")
    record = definitions._recorded(called, recorder)

    assert definitions.plain_step(record) == definitions._read(recorder, record, {})


def test_a_step_with_packages_is_read_by_the_language():
    assert b"requirements" in definitions.definition_of(with_packages).step


def test_a_plain_step_is_defined_without_the_language():
    text = (
        "import sys; from tests.programs.steps_of_programs import add; from mulligan.programs import definitions; "
        "definitions.definition_of(add); print('mulligan.language' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


@program(calls=20)
def few():
    return 1


def test_how_many_calls_a_program_may_make_is_in_its_action():
    [step_] = few.__mulligan_workflow__().check().steps

    assert step_.action is not None and step_.action.params["calls"] == 20


@step(timeuot="1m")  # type: ignore[call-overload]
def misspelled() -> None: ...


@program
def child(depth: int):
    misspelled()
    if depth:
        parent(depth - 1)


@program
def parent(depth: int):
    child(depth)


@flow
def flow_child():
    misspelled()


@program
def parent_of_a_flow():
    return flow_child()


@pytest.mark.parametrize("calling", [child, parent, parent_of_a_flow], ids=lambda calling: calling.name)
def test_a_mistake_in_what_a_called_program_calls_is_found_before_it_runs(calling: Any):
    with pytest.raises(LanguageError) as caught:
        calling.__mulligan_workflow__()

    [problem] = caught.value.problems
    assert problem.message == "'timeuot' is not a key of step 'misspelled'"


@step(env={"TOKEN": "${secrets.token}"})
def with_secret() -> None: ...


@program(secrets={"token": {"env": "API_TOKEN"}})
def declaring():
    with_secret()


@program
def asking_for_a_secret():
    mulligan.secret("token", env="API_TOKEN")


def test_what_a_program_declares_for_its_steps_is_not_called_unused():
    assert declaring.__mulligan_workflow__().examine().warnings == ()


def test_a_program_that_asks_for_a_secret_is_told_who_reads_it():
    failure = rehearse(asking_for_a_secret).failure

    assert failure is not None
    assert '@program(secrets={"token": …}), for @step(env={"TOKEN": "${secrets.token}"})' in failure.message


@pytest.mark.parametrize(
    "key", ["requirements", "python", "cache", "undo", "on_success", "needs", "outputs", "order", "inline"]
)
def test_a_key_that_a_program_would_not_use_is_refused(key: str):
    with pytest.raises(LanguageError) as caught:
        program(**{key: True})(few.fn).__mulligan_workflow__()

    [problem] = caught.value.problems
    assert problem.code in ("language.unknown_key", "language.inline") and problem.file == __file__


@step(when="false")
def maybe(number: int) -> int:
    return number


@step(next="maybe")
def before(number: int) -> int:
    return number


@program
def through(number: int) -> list[int]:
    return [before(one) for one in (number,)]


def test_a_key_of_the_graph_of_a_flow_is_refused_on_a_step_that_a_program_calls():
    with pytest.raises(LanguageError) as caught:
        through.__mulligan_workflow__()

    [problem] = caught.value.problems
    assert problem.message == "step 'before' has 'next', which belongs to flows, and a program calls it"
    assert few.__mulligan_workflow__().check().steps, "a step of the module that it does not name may have such keys"
    with pytest.raises(LanguageError, match="step 'maybe' has 'when'"):
        definitions.definition_of(maybe)


@step(retry=Retry(codes=["ConnectionError"]))
def by_exception(number: int) -> int:
    return number


@program
def retrying(number: int) -> int:
    return by_exception(number)


def test_the_keys_of_a_step_that_a_program_names_are_checked_before_it_runs():
    with pytest.raises(LanguageError) as caught:
        retrying.__mulligan_workflow__()

    [problem] = caught.value.problems
    assert problem.message == "an entry of 'codes' is 'ConnectionError', an error code such as TIMEOUT is expected"
    assert problem.hint == "'ConnectionError' belongs to 'exceptions'"
    assert problem.file == __file__


def test_what_the_checks_of_a_step_have_raised_is_shown_without_their_frames():
    with pytest.raises(LanguageError) as caught:
        definitions.definition_of(by_exception)

    found = failure_of(caught.value)

    assert "mulligan/language" not in found.trace and "'ConnectionError'" in found.message


def test_the_key_of_a_call_is_refused_for_a_run():
    with pytest.raises(LanguageError, match="names a call in another program"):
        few.options(key="monday").run(1)


def test_a_program_is_no_step_and_says_so_when_it_is_used_as_one():
    with pytest.raises(LanguageError):
        _ = few.handler  # type: ignore[attr-defined]

    assert not hasattr(few, "anything_else")
