"""One suite over both engines: they agree on what users write, value by value and error by error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.language.cel import cel
from mulligan.language.cel.cel_analysis import is_surely_valid
from mulligan.language.cel.cel_tokens import BadToken, tokens

NAMES: dict[str, Any] = {
    "inputs": {
        "x": 1,
        "f": 2.5,
        "s": "text",
        "u": "日本",
        "n": None,
        "t": True,
        "l": [1, 2, 3],
        "e": [],
        "m": {"a": {"b": [10, 20]}, "with-hyphen": 1},
        "people": [{"name": "a", "age": 3}, {"name": "b", "age": 40}],
        "big": 2**62,
    },
    "index": 0,
}

VALUES: list[tuple[str, Any]] = [
    # arithmetic: integers stay integers, division is towards zero
    ("1 + 2 * 3", 7),
    ("-5 % 3", -2),
    ("-5 / 3", -1),
    ("7 / 2", 3),
    ("7.0 / 2.0", 3.5),
    ("0.1 + 0.2", 0.30000000000000004),
    ("1 - -1", 2),
    ("0x1F", 31),
    ("1e3", 1000.0),
    ("5u", 5),
    ("inputs.x + 1", 2),
    ("inputs.f * 2.0", 5.0),
    ("inputs.big + 1", 2**62 + 1),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    # numbers of different kinds compare
    ("1 == 1.0", True),
    ("1 < 1.5", True),
    ("inputs.f > 2", True),
    ("1 in [1.0]", True),
    ("1u == 1", True),
    # conversions
    ("int('12')", 12),
    ("int(1.9)", 1),
    ("int(true)", 1),
    ("double('1.5')", 1.5),
    ("double(1)", 1.0),
    ("bool('true')", True),
    ("string(1)", "1"),
    ("string(1.5)", "1.5"),
    ("string(1.0)", "1"),
    ("string(1234567.5)", "1.2345675e+06"),
    ("string(123456.5)", "123456.5"),
    ("string(0.0001)", "0.0001"),
    ("string(0.00001)", "1e-05"),
    ("string(true)", "true"),
    ("string('a')", "a"),
    ("string(b'abc')", "abc"),
    # strings: sizes are characters
    ("'a' + 'b'", "ab"),
    ("'a' < 'b'", True),
    ("size('日本')", 2),
    ("'😀é'.size()", 2),
    ("size(inputs.u) == 2", True),
    ("inputs.u", "日本"),
    ("'\\u00e9'", "é"),
    ("r'\\d'", "\\d"),
    ("'''it's'''", "it's"),
    ("'a\"b'", 'a"b'),
    ("'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b')", True),
    ("'abc'.matches('^a.c$')", True),
    ("'a,b,c'.split(',')", ["a", "b", "c"]),
    ("['a', 'b'].join('-')", "a-b"),
    ("'Ab'.lowerAscii() + 'Ab'.upperAscii()", "abAB"),
    ("' a '.trim()", "a"),
    ("'a-b-c'.replace('-', '')", "abc"),
    ("'abc'.substring(1)", "bc"),
    ("'abc'.substring(0, 2)", "ab"),
    ("'abc'.indexOf('c')", 2),
    ("'abc'.indexOf('z')", -1),
    ("'abca'.lastIndexOf('a')", 3),
    ("'abc'.charAt(1)", "b"),
    # lists and maps
    ("[1] + [2]", [1, 2]),
    ("[1, 'a', null, [true]]", [1, "a", None, [True]]),
    ("inputs.l[0]", 1),
    ("inputs.l == [1, 2, 3]", True),
    ("2 in inputs.l", True),
    ("'x' in inputs", True),
    ("'nope' in inputs", False),
    ("{'b': 1, 'a': {'c': [2]}}", {"a": {"c": [2]}, "b": 1}),
    ("{'a': 1} == {'a': 1.0}", True),
    ("inputs.m['with-hyphen']", 1),
    ("inputs.m.a.b[1]", 20),
    ("size(inputs.m) + size(inputs.l)", 5),
    ("{'a': 1}.map(k, k)", ["a"]),
    ("[]", []),
    ("{}", {}),
    # macros
    ("inputs.l.map(v, v * 2)", [2, 4, 6]),
    ("inputs.l.map(v, v > 1, v * 2)", [4, 6]),
    ("inputs.l.filter(v, v > 1)", [2, 3]),
    ("inputs.l.exists(v, v > 2)", True),
    ("inputs.l.all(v, v > 0)", True),
    ("inputs.l.exists_one(v, v > 2)", True),
    ("inputs.e.all(v, v)", True),
    ("inputs.e.exists(v, v)", False),
    ("[1].map(v, [2].map(v, v))", [[2]]),
    ("inputs.people.filter(p, p.age > 18).map(p, p.name)", ["b"]),
    ("inputs.l.all(v, v.foo || true)", True),
    # conditions, null, has
    ("inputs.x == 1 ? 'a' : 'b'", "a"),
    ("true ? 1 : 'a'", 1),
    ("inputs.n == null", True),
    ("inputs.t == 1", False),
    ("null", None),
    ("has(inputs.x)", True),
    ("has(inputs.nope)", False),
    ("has(inputs.nope) && inputs.nope > 1", False),
    ("inputs.nope || true", True),
    ("inputs.nope && false", False),
    ("!inputs.t", False),
    # types by name
    ("type(inputs.x)", "int"),
    ("type(inputs.l) == list", True),
    ("[type(1.0), type(''), type({}), type(null), type(true)]", ["double", "string", "map", "null_type", "bool"]),
    # time: RFC 3339 in UTC, ISO 8601 durations
    ("timestamp('2024-01-01T02:00:00+02:00')", "2024-01-01T00:00:00Z"),
    ("timestamp('2024-01-01T00:00:00.5Z')", "2024-01-01T00:00:00.500000Z"),
    ("timestamp('2024-01-01T00:00:00Z') + duration('1h')", "2024-01-01T01:00:00Z"),
    ("timestamp('2024-03-01T00:00:00Z').getFullYear()", 2024),
    ("timestamp(0)", "1970-01-01T00:00:00Z"),
    ("int(timestamp('2024-01-01T00:00:00Z'))", 1704067200),
    ("duration('1h30m')", "PT5400S"),
    ("duration('1.5s')", "PT1.5S"),
    ("duration('-90s')", "PT-90S"),
    ("duration('1s') > duration('500ms')", True),
    ("string(timestamp('2024-01-01T00:00:00Z'))", "2024-01-01T00:00:00Z"),
    ("string(duration('90s'))", "90s"),
    ("timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z')", "PT86400S"),
]

# Errors whose words are the same in both engines.
FAILURES: list[tuple[str, str]] = [
    ("inputs.nope + 1", "no such key 'nope'"),
    ("inputs['nope'] == 1", "no such key 'nope'"),
    ("true && inputs.nope", "no such key 'nope'"),
    ("inputs.l[10] + 0", "index 10 is out of range"),
    ("[][0]", "index 0 is out of range"),
    ("inputs.l[-1]", "index -1 is out of range"),
    ("inputs.x / 0", "division by zero"),
    ("inputs.x % 0", "division by zero"),
    ("9223372036854775807 + inputs.x", "the result is out of range"),
    ("nope == 1", "'nope' is not known here"),
    ("'a' + inputs.x", "'+' does not work on string and int"),
    ("'a' + inputs.n", "'+' does not work on string and null"),
    ("int('x')", "the text does not have the format that int() reads"),
    ("timestamp('x')", "the text does not have the format that timestamp() reads"),
    ("1.0 / 0.0", "the result is inf, which JSON does not have"),
    ("b'x'", "the result is bytes: make it text with string(…)"),
    ("{1: 2}", "the result is a map with the key 1, which is not a string"),
]

# Errors that each engine puts in its own words.
ERRORS = [
    "inputs.s > 1",
    "inputs.l + 1",
    "inputs.s ? 1 : 2",
    "!inputs.s",
    "inputs.s && true",
    "inputs.x in 3",
    "inputs.x.y == 1",
    "inputs.n.y == 1",
    "has(inputs.x.y)",
    "1 + 1.5",
    "'a'[0]",
    "size(inputs.x)",
    "string(null)",
    "string([1])",
    "'a'.map(v, v)",
    "[1].all(v, 1)",
    "{1.5: 2}",
    "'abc'.matches('[')",
    "'abc'.substring(5)",
    "duration('bad')",
]


@pytest.fixture(params=["google", "rust"])
def engine(request: pytest.FixtureRequest) -> cel.Engine:
    return cel.engine(request.param)


def value(engine: cel.Engine, source: str, names: dict[str, Any] = NAMES) -> Any:
    cel.checked_json(names)
    return cel.plain(engine.compile(source).evaluate(names))


@pytest.mark.parametrize(("source", "expected"), VALUES)
def test_an_expression_has_the_same_value_in_every_engine(engine: cel.Engine, source: str, expected: Any) -> None:
    result = value(engine, source)

    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(("source", "reason"), FAILURES)
def test_an_expression_fails_with_the_same_words_in_every_engine(engine: cel.Engine, source: str, reason: str) -> None:
    with pytest.raises(cel.CelFailed) as failed:
        value(engine, source)

    assert str(failed.value) == reason


@pytest.mark.parametrize("source", ERRORS)
def test_what_has_no_value_is_an_error_in_every_engine(engine: cel.Engine, source: str) -> None:
    with pytest.raises(cel.CelFailed) as failed:
        value(engine, source)

    assert 0 < len(str(failed.value)) < 200


@pytest.mark.parametrize(
    ("bent", "reason"),
    [
        ("a\0b", "a text it reads has a NUL character"),
        ([{"k": "\0"}], "a text it reads has a NUL character"),
        ({"\0": 1}, "a text it reads has a NUL character"),
        (2**64, "a number it reads does not fit in 64 bits"),
        ([-(2**63) - 1], "a number it reads does not fit in 64 bits"),
        ("\ud800", "a value it reads is not JSON"),
        (object(), "a value it reads is not JSON"),
    ],
)
def test_a_value_that_an_engine_would_bend_does_not_go_in(bent: Any, reason: str) -> None:
    with pytest.raises(cel.CelFailed) as failed:
        cel.checked_json({"x": bent})

    assert str(failed.value) == reason


@pytest.mark.parametrize("kept", ["\\u0000", "12345678901234567890123", 2**64 - 1, 1.5e300, "x" * 100])
def test_a_value_that_only_looks_bent_goes_in_and_comes_out_itself(engine: cel.Engine, kept: Any) -> None:
    assert value(engine, "[x][0]", {"x": kept}) == kept


def test_an_engine_that_does_not_exist_is_named() -> None:
    with pytest.raises(ImportError) as refused:
        cel.engine("perl")

    assert str(refused.value) == "there is no CEL engine 'perl': it is 'google' or 'rust'"


def test_maps_come_out_in_one_order_whatever_the_engine(engine: cel.Engine) -> None:
    result = value(engine, "{'z': 1, 'a': 2, 'm': {'y': 1, 'b': 2}}")

    assert list(result) == ["a", "m", "z"]
    assert list(result["m"]) == ["b", "y"]


# What a sure expression may be made of, and what must make it unsure: escapes, reserved words, calls, signs, brackets.
WORDS = st.sampled_from(
    "inputs inputs.x steps.a.output index int string true false null in for while as 0 1 00 3.14 999999999999999999 "
    "9223372036854775808 1e3 5u 0x1F 'a' \"b\" '' '\\q' 'it' r'a' b'a' '''a''' && || == != < <= > >= + - * / % ! ? : "
    ". , ( ) [ ] { } ['a'] [0] .x .for .in .size() size(inputs) // ".split(" ")
)


@settings(max_examples=examples(100, 400))
@given(st.lists(WORDS, min_size=1, max_size=9), st.sampled_from(["", " "]))
def test_what_is_surely_valid_is_compiled_by_both_engines(words: list[str], between: str) -> None:
    source = between.join(words)
    try:
        is_sure = is_surely_valid(tokens(source))
    except BadToken:
        is_sure = False

    for name in ("google", "rust") if is_sure else ():
        cel.engine(name).compile(source)


@pytest.mark.parametrize(
    ("source", "is_sure"),
    [
        ("steps.build.status == 'completed' && inputs.target != 'none'", True),
        ("inputs.x in steps['a-b'].output || inputs.list[0] + 1 >= 2.5", True),
        # what only an engine can judge
        ("inputs.x == 'a\\q'", False),
        ("inputs.x == -1", False),
        ("size(inputs.x) > 1", False),
        ("inputs.x for", False),
        ("inputs.x ==", False),
        ("inputs.x inputs.y", False),
        ("9223372036854775808 > 1", False),
        (" + ".join(["1"] * 50), False),
    ],
)
def test_paths_and_literals_between_operators_are_surely_valid(source: str, is_sure: bool) -> None:
    assert is_surely_valid(tokens(source)) is is_sure
