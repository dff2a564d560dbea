"""What a run is given, against what its workflow asks for."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.errors import InputInvalid
from mulligan.language import check_inputs, load_text

WORKFLOW = load_text(
    """
name: release
inputs:
  target: {default: staging, enum: [staging, prod]}
  count: {type: integer, default: 1}
  share: {type: number, default: 0.5}
  dry: {type: boolean, default: false}
  list: {type: array, default: []}
  more: {type: object, default: {}}
steps: [{step: a, shell: make}]
"""
)
REQUIRED = load_text("inputs: {who: string}\nsteps: [{step: a, shell: make}]", "hello.yaml")


def test_without_anything_the_defaults_hold() -> None:
    assert check_inputs(WORKFLOW, {}) == {
        "target": "staging",
        "count": 1,
        "share": 0.5,
        "dry": False,
        "list": [],
        "more": {},
    }


CONVERTED = [
    # texts, as a command line gives them
    ("count", "3", 3),
    ("share", "2", 2),
    ("share", "1e-3", 0.001),
    ("dry", "true", True),
    ("list", "[1, 2]", [1, 2]),
    ("more", '{"a": null}', {"a": None}),
    ("target", "prod", "prod"),
    # values, as the API gives them
    ("count", 4, 4),
    ("list", ["x"], ["x"]),
]


@pytest.mark.parametrize(("name", "given", "value"), CONVERTED)
def test_a_text_becomes_a_value_of_the_inputs_type(name: str, given: Any, value: Any) -> None:
    assert check_inputs(WORKFLOW, {name: given})[name] == value


ANYTHING = load_text("inputs: {it: {type: any, default: null}}\nsteps: [{step: a, shell: make}]")


@pytest.mark.parametrize(("given", "value"), [("3", 3), ("null", None), ("[1]", [1]), ("plain", "plain"), (None, None)])
def test_an_input_of_any_type_takes_what_there_is(given: Any, value: Any) -> None:
    assert check_inputs(ANYTHING, {"it": given}) == {"it": value}


def test_an_input_of_any_type_may_be_null_where_nobody_gives_it() -> None:
    assert check_inputs(ANYTHING, {}) == {"it": None}


def test_a_text_stays_a_text_where_one_is_asked_for() -> None:
    assert check_inputs(REQUIRED, {"who": "3"}) == {"who": "3"}


REFUSED = [
    ("count", "many", "input 'count' is 'many', a whole number such as 3 is expected"),
    ("count", "1.5", "input 'count' is '1.5', a whole number such as 3 is expected"),
    ("count", "1e3", "input 'count' is '1e3', a whole number such as 3 is expected"),
    ("count", "7" * 39 + "xyz", f"input 'count' is '{'7' * 39}…', a whole number such as 3 is expected"),
    ("count", True, "input 'count' is true, a whole number such as 3 is expected"),
    ("share", "NaN", "input 'share' is 'NaN', a number such as 1.5 is expected"),
    ("dry", "yes", "input 'dry' is 'yes', true or false is expected"),
    ("list", "{}", "input 'list' is '{}', a list such as [1, 2] is expected"),
    ("more", "[", "input 'more' is '[', a mapping such as {\"a\": 1} is expected"),
    ("target", 3, "input 'target' is 3, a text is expected"),
]


@pytest.mark.parametrize(("name", "given", "message"), REFUSED)
def test_a_value_of_another_type_is_refused(name: str, given: Any, message: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        check_inputs(WORKFLOW, {name: given})

    assert caught.value.render() == f"error[input.invalid]: {message}"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        # more than 64 bits, half a surrogate pair, no number, no JSON, a key that would come back as text
        ("count", "99999999999999999999999"),
        ("target", "\udcff"),
        ("share", float("nan")),
        ("list", [object()]),
        ("more", '{"a": 1e999}'),
        ("more", {1: 2}),
    ],
)
def test_what_no_store_could_keep_is_refused(name: str, given: Any) -> None:
    with pytest.raises(InputInvalid) as caught:
        check_inputs(WORKFLOW, {name: given})

    assert caught.value.render() == (
        f"error[input.invalid]: input '{name}' cannot be stored as JSON\n"
        "  numbers have at most 64 bits, texts are Unicode"
    )


@pytest.mark.parametrize(
    ("workflow", "given", "said"),
    [
        (WORKFLOW, {"tagret": "x"}, "workflow 'release' has no input 'tagret'\n  did you mean 'target'?"),
        (REQUIRED, {"who": "x", "zzz": 1}, "workflow 'hello' has no input 'zzz'\n  it has 'who'"),
        (REQUIRED, {}, "input 'who' is missing\n  give it with -i who=VALUE"),
        (
            WORKFLOW,
            {"target": "prd"},
            "input 'target' is 'prd', 'staging' or 'prod' is expected\n  did you mean 'prod'?",
        ),
    ],
)
def test_an_input_that_does_not_fit_is_refused_with_what_to_do(workflow: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        check_inputs(workflow, given)

    assert caught.value.render() == f"error[input.invalid]: {said}"
