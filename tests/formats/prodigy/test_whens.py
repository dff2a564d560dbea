"""Prodigy's `when` as a condition of ours."""

from __future__ import annotations

import pytest

from mulligan.errors import LanguageError
from mulligan.language.expressions import check, evaluate

from .reading import steps

FIRST = "- {id: one, shell: a, capture: x}\n- {id: two, shell: a, capture: y, capture_format: json}\n"


def condition(when: str) -> str:
    found = steps(f"{FIRST}- shell: b\n  when: {when}\n")
    said: str = found[2]["when"]
    return said


HOLD = [
    # as numbers, though what was printed is text
    ("${x} > 5", "7", None, True),
    ("${x} > 10", "7", None, False),
    ("${x} <= 7.5", "7", None, True),
    # as text
    ("${x} == 'main'", "main", None, True),
    ('${x} != "main"', "main", None, False),
    ("${x} == true", "true", None, True),
    # a variable alone
    ("${x}", "true", None, True),
    ("'!${x}'", "true", None, False),
    ("$x", "no", None, False),
    ("x", "true", None, True),
    # fields, and such as are not there
    ("${y.ok} == true", "", {"ok": True}, True),
    ("${y.ok} == true", "", {}, False),
    ("exists(${y.ok})", "", {}, False),
    ("exists(y.ok)", "", {"ok": 1}, True),
    ("exists(nope)", "", None, False),
    ("'!exists(${nope.field})'", "", None, True),
    ("exists(x)", "", None, True),
    ("${y.ok} == true", "", "a text has no fields", False),
    ("${y.ok} == true", "", None, False),
    # whether a variable has a value; or its field of that name
    ("${y.exists}", "", {"ok": 1}, True),
    ("${y.exists}", "", "some text", True),
    ("${y.exists}", "", None, False),
    ("${y.exists}", "", {"exists": False}, False),
    ("${y.exists} && ${x} == 'a'", "a", {"exists": True}, True),
    ("${y.meta.exists}", "", {"meta": 1}, True),
    ("${y.meta.exists}", "", {}, False),
    ("${nope.exists}", "", None, False),
    ("${nope.exists} == false", "", None, True),
    # put together
    ("${x} == 'a' && ${y.n} >= 2", "a", {"n": 2}, True),
    ("(${x} == 'a' || ${x} == 'b') && !(${y.n} > 3)", "b", {"n": 4}, False),
    ("${x} == a", "a", None, False),
    # what nobody has set is nothing
    ("${nobody} == ''", "", None, True),
    ("${nobody:-main} == 'main'", "", None, True),
    # a default where there is no such field, element or value
    ("${y.n:-3} > 2", "", {}, True),
    ("${y.n:-3} > 2", "", {"n": 1}, False),
    ("${y.tags[0]:-none} == 'none'", "", {"tags": []}, True),
    ("${y.tags[0]} == ''", "", {"tags": []}, True),
    ("${y.meta.owner:-bob} == 'bob'", "", {"meta": None}, True),
    ("${y.meta.on-call:-bob} == 'eve'", "", {"meta": {"on-call": "eve"}}, True),
]


@pytest.mark.parametrize(("when", "x", "y", "holds"), HOLD)
def test_a_condition_holds_as_it_does_for_prodigy(when: str, x: str, y: object, holds: bool) -> None:
    names = {"steps": {"one": {"output": x}, "two": {"output": y}}}

    assert evaluate(check(condition(when)), names) is holds


CONDITIONS = [
    ("${ok}", "(steps.one.output.trim().lowerAscii() in ['true', 'yes', '1', 'on'])"),
    ("${ok} == true", "(steps.one.output.trim().lowerAscii() in ['true', 'yes', '1', 'on'])"),
    ("${ok} != true", "!(steps.one.output.trim().lowerAscii() in ['true', 'yes', '1', 'on'])"),
    ("${ok} == 'false'", "!(steps.one.output.trim().lowerAscii() in ['true', 'yes', '1', 'on'])"),
]


@pytest.mark.parametrize(("when", "ours"), CONDITIONS)
def test_what_is_true_or_false_is_a_condition_itself(when: str, ours: str) -> None:
    first = "- {id: one, shell: a, capture: ok, capture_format: boolean}\n"

    assert steps(f"{first}- shell: b\n  when: {when}\n")[1]["when"] == ours


REFUSED = [
    (
        "${x} =~ 'a'",
        "error[language.prodigy]: flow.yml:4:14: '=' is not expected in a condition\n"
        "  4 |   when: ${x} =~ 'a'\n"
        "    |              ^ write a comparison such as ${count} > 5 && ${branch} == 'main'",
    ),
    (
        "${x} ==",
        "error[language.prodigy]: flow.yml:4:15: the condition ends too early\n"
        "  4 |   when: ${x} ==\n"
        "    |               ^ write a comparison such as ${count} > 5 && ${branch} == 'main'",
    ),
    (
        "(${x} == 1",
        "error[language.prodigy]: flow.yml:4:18: the condition ends too early\n"
        "  4 |   when: (${x} == 1\n"
        "    |                  ^ write a comparison such as ${count} > 5 && ${branch} == 'main'",
    ),
    (
        "${x} == 1 2",
        "error[language.prodigy]: flow.yml:4:19: '2' is not expected in a condition here\n"
        "  4 |   when: ${x} == 1 2\n"
        "    |                   ^ write a comparison such as ${count} > 5 && ${branch} == 'main'",
    ),
    (
        "&& ${x}",
        "error[language.prodigy]: flow.yml:4:10: '&&' is not expected in a condition here\n"
        "  4 |   when: '&& ${x}'\n"
        "    |          ^^ write a comparison such as ${count} > 5 && ${branch} == 'main'",
    ),
]


@pytest.mark.parametrize("when", ["!" * 51 + "x", "(" * 51 + "x" + ")" * 51, "exists(" * 51 + "x" + ")" * 51])
def test_conditions_that_nest_too_deep_are_refused(when: str) -> None:
    with pytest.raises(LanguageError, match="conditions are nested more than 50 levels deep"):
        steps(f"- {{shell: date, when: '{when}'}}\n")


@pytest.mark.parametrize(("when", "said"), REFUSED)
def test_what_is_no_condition_is_refused(when: str, said: str) -> None:
    quoted = f"'{when}'" if when.startswith("&") else when

    with pytest.raises(LanguageError) as caught:
        steps(f"{FIRST}- shell: b\n  when: {quoted}\n")

    assert caught.value.render() == said
