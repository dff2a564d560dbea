"""NoETL's templates: what they give, what they refuse, and what a hostile one cannot do."""

from __future__ import annotations

from typing import Any

import pytest

from .asking import reported, result, seen

WORKLOAD = {"a": {"b": [1, 2]}, "zip": "0123", "flag": False, "page": {"items": [3], "keys": "k"}, "text": "{{ zip }}"}
STEPS = {
    "fetch": seen({"status": 200, "data": {"paging": {"more": True}, "items": [7]}, "headers": {}}),
    "query": seen(
        {"status": "success", "rows": [{"n": 1}, {"n": 2}], "row_count": 2, "command_0": {"rows": [{"n": 1}]}}
    ),
    "two-words": seen("said"),
    "later": None,
}


def rendered(template: Any) -> Any:
    return result(render=template, workload=WORKLOAD, seen=STEPS)


def refusal(template: Any) -> str:
    report = reported(render=template, workload=WORKLOAD, seen=STEPS)
    assert (report["code"], report["retryable"]) == ("EXPRESSION_FAILED", False)
    return str(report["message"])


@pytest.mark.parametrize(
    ("template", "value"),
    [
        # one expression keeps its type, whatever is around it
        ("{{ workload.a }}", {"b": [1, 2]}),
        ("  {{workload.a.b}}\n", [1, 2]),
        ("{{- workload.flag -}}", False),
        ("{{ workload.nothing | default(none) }}", None),
        # also if it is a text that looks like a number
        ("{{ workload.zip }}", "0123"),
        # a text is a text, unless it tells a value
        ("zip {{ zip }}", "zip 0123"),
        ("{{ a.b[0] }}{{ a.b[1] }}", 12),
        ("[{{ a.b[0] }}, {'x': True}]", [1, {"x": True}]),
        ("{{ 'true' if a.b else 'false' }}", True),
        ("{{ '1.50' }}", 1.5),
        ("{{ '007' ~ '' }}", "007"),
        # what `tojson` wrote stays text
        ("{{ a | tojson }}", '{"b": [1, 2]}'),
        # without a template nothing is looked at
        ("[1, 2]", "[1, 2]"),
        ("12", "12"),
        # what a value holds is never a template
        ("{{ workload.text }}", "{{ zip }}"),
        ("say {{ workload.text }}", "say {{ zip }}"),
        # keys come before methods
        ("{{ workload.page.items }}", [3]),
        ("{{ workload.page.keys }}", "k"),
        ("{{ workload.a.items() }}", [["b", [1, 2]]]),
        # a default holds at any depth
        ("{{ nobody.knows.this | default('x') }}", "x"),
        ("{{ 'yes' if later is defined else 'no' }}", "no"),
        # a step that has not run is not true
        ("{{ later.message if later else 'none' }}", "none"),
        # what is gone through is a list
        ("{{ a.b | map('string') }}", ["1", "2"]),
        ("{{ 'a b' | b64encode }}", "YSBi"),
        ("{{ 'YSBi' | b64decode }}", "a b"),
        ("{{ '{\"x\": 1}' | fromjson }}", {"x": 1}),
        ("{% for n in a.b %}{{ n }};{% endfor %}", "1;2;"),
        # everything within, keys among it
        ({"{{ zip }}": ["{{ a.b }}", 5, None]}, {"0123": [[1, 2], 5, None]}),
    ],
)
def test_a_template_is_filled_in(template: Any, value: Any) -> None:
    assert rendered(template) == value


@pytest.mark.parametrize(
    ("template", "value"),
    [
        # the ways in which people look into what a step gave
        ("{{ fetch.data.paging.more }}", True),
        ("{{ fetch.data.data.paging.more }}", True),
        ("{{ fetch.result.data.items }}", [7]),
        ("{{ fetch.paging.more }}", True),
        ("{{ fetch.status }}", 200),
        ("{{ query.rows[1].n }}", 2),
        ("{{ query.data.rows[1].n }}", 2),
        ("{{ query.command_0.rows[0].n }}", 1),
        ("{{ query[0].n }}", 1),
        ("{{ two_words.data }}", "said"),
        ("{{ steps['two-words'] }}", "said"),
    ],
)
def test_the_result_of_a_step_is_found_under_the_names_people_write(template: str, value: Any) -> None:
    assert rendered(template) == value


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ nobody }}", "'{{ nobody }}': 'nobody' is not defined"),
        ("id {{ workload.nme }}", "'id {{ workload.nme }}': there is no 'nme'"),
        ("{{ fetch.data.missing }}", "'{{ fetch.data.missing }}': there is no 'missing'"),
        ("{{ later.x }}", "'{{ later.x }}': step 'later' has not run"),
        ("{{ 1 / 0 }}", "'{{ 1 / 0 }}': ZeroDivisionError: division by zero"),
        ("{{ [] + fetch }}", "'{{ [] + fetch }}': TypeError: can only concatenate list (not \"dict\") to list"),
        (
            "{{ zip",
            "'{{ zip': this template is invalid: unexpected end of template, expected 'end of print statement'",
        ),
        ("{{ zip | nofilter }}", "'{{ zip | nofilter }}': this template is invalid: no filter named 'nofilter'"),
        ("x" * 200 + "{{ nobody }}", f"'{'x' * 120}…': 'nobody' is not defined"),
    ],
)
def test_what_cannot_be_filled_in_is_named(template: str, message: str) -> None:
    assert refusal(template) == message


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        # the ways out of the sandbox
        ("{{ ''.__class__ }}", "the sandbox refused it: access to attribute '__class__' of 'str' object is unsafe"),
        (
            "{{ cycler.__init__.__globals__ }}",
            "the sandbox refused it: access to attribute '__init__' of 'type' object is unsafe",
        ),
        (
            "{{ workload.a.update({}) }}",
            "the sandbox refused it: access to attribute 'update' of 'dict' object is unsafe",
        ),
        # what would fill the memory
        ("{{ 'a' * 99999999999 }}", "the sandbox refused it: a value repeated 99999999999 times is too large"),
        ("{{ 2 ** 999999999 }}", "the sandbox refused it: the exponent 999999999 is too large"),
        ("{{ '%999999999d' % 1 }}", "the sandbox refused it: the width of a format is too large"),
        (
            "{{ range(99999999) | list }}",
            "OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).",
        ),
        (
            "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
            "the sandbox refused it: it gives more than 16777216 characters",
        ),
    ],
)
def test_a_hostile_template_is_refused(template: str, reason: str) -> None:
    assert refusal(template) == f"'{template}': {reason}"


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ later }}", None),
        ("{{ later.data.x }}", None),
        ("it gave {{ later.x }}.", "it gave ."),
        ("{{ later.x | default('nothing') }}", "nothing"),
        ("{{ 'yes' if later else 'no' }}", "no"),
    ],
)
def test_end_reads_nothing_of_a_step_that_did_not_run(
    template: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_STEP", "end")

    assert rendered(template) == value


def test_end_is_told_of_names_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_STEP", "end")

    assert refusal("{{ nobody }}") == "'{{ nobody }}': 'nobody' is not defined"
