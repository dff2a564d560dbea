"""Workflows written in Python: the same structs, and refusals that point into the Python file."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import pytest

from mulligan.core.model.workflow import encode
from mulligan.errors import LanguageError
from mulligan.language import load_text
from mulligan.language.keys.workflow_keys import STEP, WORKFLOW
from mulligan.language.python.builder import Workflow


def test_python_and_yaml_make_the_same_workflow() -> None:
    release = Workflow("release", timeout="1h", defaults={"retry": 1})
    release.input("target", default="staging", enum=["staging", "prod"]).input("n", "integer")
    release.secret("token", env="TOKEN").breaker("api", failures=3)
    release.policy("flaky", rules=[{"any": True}]).handler("tidy", "make clean", "make")
    release.step("build", shell="make TARGET=${inputs.target}", retry="flaky", on_failure={"use": "tidy"})
    release.step(
        "check", needs=["build"], map={"over": [1, 2], "as": "x"}, do=["echo ${x}"], timeout=timedelta(minutes=5)
    )
    release.end(shell="make").outputs(all="${steps.build.output}")

    written = load_text(
        """
        name: release
        timeout: 1h
        defaults: {retry: 1}
        inputs: {target: {type: string, default: staging, enum: [staging, prod]}, n: {type: integer}}
        secrets: {token: {env: TOKEN}}
        breakers: {api: {failures: 3}}
        retry_policies: {flaky: {rules: [{any: true}]}}
        handlers: {tidy: {commands: [make clean, make]}}
        steps:
          - {step: build, shell: 'make TARGET=${inputs.target}', retry: flaky, on_failure: {use: tidy}}
          - {step: check, needs: [build], map: {over: [1, 2], as: x}, do: ['echo ${x}'], timeout: 5m}
        end: {shell: make}
        outputs: {all: '${steps.build.output}'}
        """
    )

    assert release.check() == written


class Size(IntEnum):
    SMALL = 3


class Tool(str, Enum):  # noqa: UP042 - its text is not what str() makes of it
    MAKE = "make"


def test_a_member_of_an_enumeration_is_its_value() -> None:
    made = Workflow("w").step("a", shell=Tool.MAKE, retry=Size.SMALL, env={"N": Size.SMALL})

    assert made.check() == load_text("name: w\nsteps: [{step: a, shell: make, retry: 3, env: {N: 3}}]")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**63, "the number 9223372036854775808 does not fit into 64 bits"),
        ("a\0b", "the text contains the character U+0000, which is not allowed"),
        ("a\ud800", "the text contains the character U+D800, which is not allowed"),
        ({1}, "a workflow is made of plain values, and this is a set"),
    ],
)
def test_what_no_file_could_say_python_cannot_say_either(value: object, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        Workflow("w").outputs(x=[value])

    assert [problem.message for problem in caught.value.problems] == [message]


def test_what_is_declared_twice_is_refused() -> None:
    with pytest.raises(LanguageError) as caught:
        Workflow("w").input("target").input("target", "integer")

    [problem] = caught.value.problems
    assert problem.message == f"'target' appears twice: first in line {problem.line}"


def report(count: int) -> int:
    return count


def test_a_function_becomes_a_step_that_calls_it() -> None:
    work = Workflow("work")

    same = work.python(args={"count": 3})(report)

    action = work.check().steps[0].action
    assert same is report
    assert work.check().steps[0].name == "report"
    assert action is not None
    assert action.params == {"call": f"{report.__module__}:report", "args": {"count": 3}}


def test_a_refusal_points_at_the_python_line_that_said_it() -> None:
    work = Workflow("work")
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    work.step("build", shell="make", needs=["nobody"])

    with pytest.raises(LanguageError) as caught:
        work.check()

    assert caught.value.render() == (
        f"error[language.unknown_step]: {__file__}:{line}:46: step 'build' needs 'nobody', which is not a step\n"
        f'  {line} |     work.step("build", shell="make", needs=["nobody"])\n'
        f"  {' ' * len(str(line))} |                                              ^^^^^^"
    )


def test_a_refusal_finds_its_word_in_a_call_of_several_lines() -> None:
    work = Workflow("work")
    work.step(
        "build",
        shell="make",
        tiemout="3s",
    )

    with pytest.raises(LanguageError) as caught:
        work.check()

    problem = caught.value.problems[0]
    assert problem.source_line.strip() == 'tiemout="3s",'
    assert (problem.column, problem.length, problem.hint) == (9, 7, "did you mean 'timeout'?")


def test_what_is_no_plain_value_is_refused() -> None:
    work = Workflow("work")

    with pytest.raises(LanguageError) as caught:
        work.step("build", shell=Path("x"))

    assert caught.value.problems[0].message == "a workflow is made of plain values, and this is a PosixPath"


def test_a_function_inside_another_is_refused() -> None:
    work = Workflow("work")

    with pytest.raises(LanguageError) as caught:

        @work.python()
        def inner() -> None: ...

    assert "workers cannot import the function" in caught.value.problems[0].message


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "python-api.md"
TWICE = re.findall(r"^```yaml\n(.*?)^```\n+```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize(("written", "code"), TWICE, ids=[written.partition("\n")[0] for written, _ in TWICE])
def test_on_its_page_every_workflow_is_the_same_in_both_languages(written: str, code: str, tmp_path: Path) -> None:
    names: dict[str, Any] = {"Workflow": Workflow, "timedelta": timedelta}

    exec(compile(code, str(tmp_path / "page.py"), "exec"), names)

    assert encode(names["flow"].check()) == encode(load_text(written))


def test_the_page_has_every_key_of_a_file_and_of_a_step() -> None:
    known = {*WORKFLOW.keys, *STEP.keys}

    shown = {key for key in known if re.search(rf"\b{key}:", "".join(written for written, _ in TWICE))}

    assert known - shown == {"workflow"}
