"""Requirements of python actions: what is accepted, and how `defaults` and actions add up."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from mulligan.language import load_text
from mulligan.language.python.requirements import find_mistake


@pytest.mark.parametrize(
    "text",
    [
        "pandas",
        "pandas>=2",
        "pandas >= 2, <3",
        "pandas[parquet, aws]==2.2.*",
        "p[]",
        "zope.interface_x-1",
        "x (>=1,<2)",
        "x~=1.4.2",
        "x===weird-1",
        "x==1!1.0a1.post2.dev3+local.1",
        "x==1.0-1",
        "lib @ https://example.org/lib-1.0-py3-none-any.whl",
        "lib@git+ssh://git@example.org/lib.git@v1",
        "lib @ git+https://example.org/lib.git@0a1b2c ; python_version < '3.12'",
        "tomli; python_version < '3.11' and (os_name == \"nt\" or sys_platform not in 'linux darwin')",
    ],
)
def test_a_requirement_of_pep_508_is_accepted(text: str) -> None:
    assert find_mistake(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "-r x.txt", "--no-deps", "-e .", "./x", "../x", "/x", "~/x", "x/", "x.whl", "x.txt", "# x", "!x"),
        *("file:///x", "https://x/y.whl", "x @", "x @ file:///x", "x @ ./x", "x @ https://u:p@h/x", "x @ https://y z"),
        *(
            "x=1",
            "x 1",
            "x y",
            "x>=",
            "x>=1 y",
            "x>=one",
            "x>=1.*",
            "x>=1,",
            "x>>1",
            "x~=1",
            "x>=1+a",
            "x[",
            "x[a b]",
            "x (>=1",
            "x>=1)",
        ),
        *(
            "x;",
            "x; a == 'b'",
            "x; os_name",
            "x; os_name ==",
            "x; os_name == 'a' 'b'",
            "x; os_name == a",
            "x; (os_name",
        ),
        *("x; " + "(" * 5000, "x\ny", "${x}", "x==${y}", "é", "x>=1.0é"),
    ],
)
def test_anything_other_than_a_requirement_is_refused_at_a_place_in_its_text(text: str) -> None:
    mistake = find_mistake(text)

    assert mistake is not None
    assert 0 <= mistake.offset <= len(text)
    assert mistake.length >= 1


PARTS = (
    *(
        "pandas",
        "a.b",
        " ",
        "[x]",
        "[x,y]",
        "[]",
        ">=2",
        "==2.*",
        "<3",
        ",",
        "!=1.0a1",
        "~=2.1",
        "~=2",
        ">=1+l",
        ">=2.*",
    ),
    *("(>=1)", ";", " python_version<'3'", " os_name=='nt'", " and ", " or ", "(", ")", "in", " not in ", "=2", "'3'"),
)


def test_what_is_accepted_is_what_the_library_of_pip_accepts() -> None:
    packaging = pytest.importorskip("packaging.requirements", reason="pytest brings it")
    chosen = random.Random(7)

    for _ in range(5000):
        text = "pandas" + "".join(chosen.choices(PARTS, k=chosen.randint(1, 5)))
        try:
            packaging.Requirement(text)
            is_valid = True
        except packaging.InvalidRequirement:
            is_valid = False
        # The library accepts a comma after the last version; PEP 508 does not.
        has_stray_comma = re.search(r",\s*([;)]|$)", text) is not None
        assert has_stray_comma or (find_mistake(text) is None) == is_valid, text


def python_params(action: str, defaults: str = "") -> dict[str, Any]:
    workflow = load_text(f"name: a\n{defaults}\nsteps:\n  - step: a\n    python: {action}\n", "w.yaml")
    action_of_step = workflow.steps[0].action
    assert action_of_step is not None
    return action_of_step.params


CODE = "code: 'def main(): pass'"
DEFAULTS = "defaults: {requirements: [pandas>=2]}"


def test_requirements_are_kept_in_their_order_and_each_once() -> None:
    params = python_params(f"{{{CODE}, requirements: [pandas>=2, ' attrs ', pandas>=2]}}")

    assert params["requirements"] == ["pandas>=2", "attrs"]


def test_a_function_may_have_requirements() -> None:
    assert python_params("{call: 'a:b', requirements: [attrs]}") == {"call": "a:b", "requirements": ["attrs"]}


def test_an_action_without_requirements_gets_those_of_the_defaults() -> None:
    assert python_params("'def main(): pass'", DEFAULTS)["requirements"] == ["pandas>=2"]


def test_requirements_of_an_action_replace_those_of_the_defaults() -> None:
    assert python_params(f"{{{CODE}, requirements: [attrs]}}", DEFAULTS)["requirements"] == ["attrs"]


def test_an_empty_list_means_that_the_action_needs_no_environment() -> None:
    assert "requirements" not in python_params(f"{{{CODE}, requirements: []}}", DEFAULTS)
