"""`any_path`: where it may stand, and what is said where it may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mulligan.core.model.workflow import Expression, Step, Template
from mulligan.errors import LanguageError
from mulligan.language import load_text

from .reading import step

TOP = "inputs: {dir: {type: string}}\nsecrets: {s: {env: S_VALUE}}\n"
ANYWHERE = Expression("inputs.dir", ("inputs",), any_path=True)


def lister_file(found: Step) -> Template:
    assert found.map and found.map.lister and found.map.lister.action
    return found.map.lister.action.bindings["_items_file"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("shell: b\ncwd: '${any_path(inputs.dir)}/sub'", lambda found: found.cwd),
        ("shell: b\nlogs: {stderr: '${ any_path( inputs.dir ) }/sub'}", lambda found: found.logs["stderr"]),
        ("map: {over: {file: '${any_path(inputs.dir)}/sub'}}\ndo: c", lister_file),
    ],
)
def test_the_author_may_let_a_value_in_a_path_lead_anywhere(text: str, where: Callable[[Step], Template]) -> None:
    found = step(text, top=TOP)

    assert where(found).parts == (ANYWHERE, "/sub")


def test_a_matrix_may_be_in_it() -> None:
    flow = load_text(
        "inputs: {d: {}}\nsteps: [{step: a, matrix: {n: [1]}, shell: b, cwd: '${any_path(inputs.d + matrix.n)}'}]"
    )

    assert flow.steps[0].cwd == Template((Expression("inputs.d + 1", ("inputs",), any_path=True),))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("shell: b\nenv: {D: '${any_path(inputs.dir)}'}", "language.expression"),
        ("shell: b\ncwd: '${any_path(inputs.dir) + \"x\"}'", "language.expression"),
        ("shell: b\ncwd: '${any_path(inputs.dir) + any_path(inputs.dir)}'", "language.expression"),
        ("shell: b\ncwd: '${any_path()}'", "language.expression"),
        ("shell: b\ncwd: '${any_path(inputs.dirr)}'", "language.unknown_input"),
        ("shell: b\ncwd: '${any_path(secrets.s)}'", "language.secret"),
    ],
)
def test_it_is_refused_where_it_is_not_around_the_whole_of_a_value_in_a_path(text: str, code: str) -> None:
    with pytest.raises(LanguageError) as caught:
        step(text, top=TOP)

    assert [problem.code for problem in caught.value.problems] == [code]


def test_the_refusal_says_where_it_may_stand() -> None:
    with pytest.raises(LanguageError) as caught:
        load_text("inputs: {d: {}}\nsteps: [{step: a, shell: 'b', env: {D: '${any_path(inputs.d)}'}}]")

    (problem,) = caught.value.problems
    assert (
        problem.hint
        == "use it in paths ('cwd', 'logs', 'file' of a map), around the whole expression: ${any_path(inputs.x)}"
    )
