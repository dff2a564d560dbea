"""Answers are checked against schemas as a library would check them, and the problems are said in words."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from mulligan.core.deciding.json_schema import DEPTH_MAX, PROBLEMS_MAX, schema_problem, value_problems

VERDICT = {
    "type": "object",
    "required": ["verdict"],
    "properties": {
        "verdict": {"enum": ["retry", "fail"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "reason": {"type": "string", "minLength": 3, "maxLength": 8},
    },
    "additionalProperties": False,
}
TREE = {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"}
SCHEMAS: list[Any] = [
    VERDICT,
    TREE,
    True,
    {"type": ["string", "null"]},
    {"type": "integer"},
    {"const": 1},
    {"const": True},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"const": "x"}}]},
    {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]},
    {"allOf": [{"required": ["a"]}, {"required": ["b"]}], "maxProperties": 2},
    {"exclusiveMinimum": 1, "exclusiveMaximum": 3},
    {"pattern": "^(a|b)+$"},
    {"additionalProperties": {"type": "integer"}, "minProperties": 1},
    {"properties": {"a": False}},
]
VALUES: list[Any] = [
    {"verdict": "retry", "confidence": 1, "reason": "disk"},
    {"verdict": "maybe", "confidence": 1.5, "reason": "it", "more": 1},
    {"confidence": -1, "reason": "far too long"},
    {"next": {"next": {"next": 3}}},
    {"a": 1, "b": 2},
    {"a": 1},
    {},
    [],
    [1],
    [1, 1.0],
    [1, 2, 3],
    ["x"],
    "x",
    "abba",
    None,
    True,
    1,
    2,
    2.0,
    2.5,
    0,
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=repr)
def test_a_value_matches_exactly_if_it_does_for_the_library(schema: Any) -> None:
    assert schema_problem(schema) == ""

    ours = [value_problems(schema, value) == [] for value in VALUES]

    assert ours == [jsonschema.Draft202012Validator(schema).is_valid(value) for value in VALUES]


def test_problems_name_the_place_the_value_and_what_is_expected() -> None:
    assert value_problems(VERDICT, {"verdict": "maybe", "confidence": 1.5, "reason": "it", "more": 1}) == [
        'answer.verdict is "maybe", and must be one of "retry", "fail"',
        "answer.confidence is 1.5, and must be at most 1",
        "answer.reason has 2 characters, and must have at least 3",
        "answer has 'more', which is not allowed; its names are 'verdict', 'confidence', 'reason'",
    ]
    assert value_problems(VERDICT, {}) == ["answer has no 'verdict'"]
    assert value_problems(VERDICT, "retry") == ['answer is "retry", and must be an object']
    assert value_problems({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, ["a", 3]) == [
        "answer[1] matches none of 2 forms: answer[1] is 3, and must be a text; or answer[1] is 3, and must be null"
    ]


def test_a_hostile_value_gives_few_short_problems() -> None:
    problems = value_problems({"items": {"type": "integer"}}, ["x" * 10_000] * 1000)

    assert len(problems) == PROBLEMS_MAX
    assert all(len(problem) < 200 for problem in problems)
    deep: Any = {}
    for _ in range(2 * DEPTH_MAX):
        deep = {"next": deep}
    assert "levels deep" in value_problems(TREE, deep)[0]


def test_a_value_that_would_take_for_ever_is_given_up() -> None:
    either = {"properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = {"$defs": {"node": {"anyOf": [either, either, either]}}, "$ref": "#/$defs/node"}
    deep: Any = {}
    for _ in range(20):
        deep = {"next": deep}

    assert schema_problem(schema) == ""
    assert value_problems(schema, deep) == ["answer is too complex to be checked against its schema"]


def test_numbers_and_texts_that_hardly_anything_can_hold_are_compared_and_shown() -> None:
    huge, half = 10**400, "\ud800"

    assert value_problems({"enum": [huge, 1e308, half]}, huge) == []
    assert value_problems({"const": 1}, half) == ['answer is "?", and must be 1']
    assert value_problems({"properties": {}, "additionalProperties": {"type": "null"}}, {"k" * 1000: huge})[0].endswith(
        "…, and must be null"
    )


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], "'schema' is []; a mapping such as {type: object} is expected"),
        ({"if": {}}, "'schema.if': the keyword 'if' is not supported"),
        ({"properties": {"a": {"type": "text"}}}, "'schema.properties.a.type' must be one of object, array,"),
        ({"type": []}, "'schema.type' must be one of"),
        ({"type": [[]]}, "'schema.type' must be one of"),
        ({"enum": []}, "'schema.enum' must be a list of values"),
        ({"required": "a"}, "'schema.required' must be a list of names"),
        ({"minLength": -1}, "'schema.minLength' must be a whole number, 0 or more"),
        ({"maximum": "1"}, "'schema.maximum' must be a number"),
        ({"uniqueItems": 1}, "'schema.uniqueItems' must be true or false"),
        ({"anyOf": []}, "'schema.anyOf' must be a list of schemas"),
        ({"anyOf": [1]}, "'schema.anyOf[0]' is 1; a mapping"),
        ({"properties": []}, "'schema.properties' must be a mapping of schemas by name"),
        ({"pattern": "("}, "'schema.pattern' is not a regular expression that can be searched"),
        ({"pattern": r"(a+)+\1"}, "'schema.pattern' is not a regular expression that can be searched"),
        ({"$ref": "http://elsewhere"}, "'schema.$ref' must point into the same schema"),
        ({"$ref": "#/$defs/x"}, "'schema.$ref' refers to '#/$defs/x', which is not there"),
        (
            {"$defs": {"a": {"$ref": "#/$defs/a"}}},
            "'schema.$defs.a.$ref' refers to '#/$defs/a', which refers to itself",
        ),
        ({"$ref": "#"}, "'schema.$ref' refers to '#', which refers to itself"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: Any, problem: str) -> None:
    assert schema_problem(schema).startswith(problem)


def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: Any = {}
    for _ in range(2 * DEPTH_MAX):
        schema = {"items": schema}

    assert "levels deep" in schema_problem(schema)
