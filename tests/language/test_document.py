"""YAML 1.2: what scalars mean, where everything stands, and both parsers alike."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, plain

from .test_schema import GOOD

PARSERS = pytest.mark.parametrize("is_c_parser_wanted", [True, False], ids=["c", "pure"])


def read(text: str, *, is_c_parser_wanted: bool = True) -> Mapping:
    node = parse(Source(text, "w.yaml"), is_c_parser_wanted=is_c_parser_wanted)
    assert isinstance(node, Mapping)
    return node


def scalar(node: Mapping, key: str) -> Scalar:
    found = node.get(key)
    assert isinstance(found, Scalar)
    return found


MEANINGS = [
    # words that YAML 1.1 took for booleans are texts
    ("on", "on"),
    ("off", "off"),
    ("yes", "yes"),
    ("no", "no"),
    ("y", "y"),
    # sexagesimal numbers and dates are texts
    ("1:10", "1:10"),
    ("2026-11-15", "2026-11-15"),
    # booleans and null in the three spellings
    ("true", True),
    ("True", True),
    ("TRUE", True),
    ("tRUE", "tRUE"),
    ("false", False),
    ("False", False),
    ("null", None),
    ("Null", None),
    ("~", None),
    ("", None),
    # whole numbers: a leading zero is decimal
    ("0", 0),
    ("010", 10),
    ("-7", -7),
    ("+7", 7),
    ("0o17", 15),
    ("0x1f", 31),
    ("0b11", "0b11"),
    ("1_000", "1_000"),
    ("9223372036854775807", 2**63 - 1),
    # numbers with a fraction
    ("1.5", 1.5),
    (".5", 0.5),
    ("1.", 1.0),
    ("1e3", 1000.0),
    ("-1.5e-3", -0.0015),
    (".inf", math.inf),
    ("-.inf", -math.inf),
    (".", "."),
    ("1.2.3", "1.2.3"),
    ("0.0.1", "0.0.1"),
    # quoted scalars are texts
    ("'010'", "010"),
    ('"true"', "true"),
    ("''", ""),
    # explicit tags
    ("!!str 010", "010"),
    ("!!int '7'", 7),
    ("!!float 1", 1.0),
    ("!!bool 'true'", True),
    ("!!null ''", None),
    ("! 010", "010"),
]


@PARSERS
@pytest.mark.parametrize(("written", "value"), MEANINGS)
def test_a_scalar_means_what_yaml_1_2_says(written: str, value: object, is_c_parser_wanted: bool) -> None:
    node = read(f"key: {written}\n", is_c_parser_wanted=is_c_parser_wanted)

    found = scalar(node, "key").value

    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_a_number() -> None:
    node = read("key: .nan\n")

    assert math.isnan(scalar(node, "key").value)


def test_on_and_no_are_keys_like_any_other() -> None:
    node = read("on: 1\nno: 2\n1: 3\n")

    assert plain(node) == {"on": 1, "no": 2, "1": 3}


@PARSERS
def test_every_key_and_value_has_its_place(is_c_parser_wanted: bool) -> None:
    node = read("a: 1\nlonger:\n  - {b: two}\n", is_c_parser_wanted=is_c_parser_wanted)

    inner = node.get("longer").items[0]  # type: ignore[union-attr]

    assert (node.key("longer").line, node.key("longer").column) == (1, 0)
    assert isinstance(inner, Mapping)
    assert (inner.key("b").line, inner.key("b").column) == (2, 5)
    assert (scalar(inner, "b").line, scalar(inner, "b").column, scalar(inner, "b").end_column) == (2, 8, 11)


def test_an_alias_stands_for_the_value_of_its_anchor() -> None:
    node = read("a: &x [1, {b: 2}]\nc: *x\nd: &y text\ne: *y\n")

    assert plain(node) == {"a": [1, {"b": 2}], "c": [1, {"b": 2}], "d": "text", "e": "text"}


def test_an_anchor_may_be_set_again() -> None:
    node = read("a: &x 1\nb: *x\nc: &x 2\nd: *x\n")

    assert plain(node) == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_a_byte_order_mark_is_skipped() -> None:
    node = parse(decode(b"\xef\xbb\xbfname: x\n", "w.yaml"))

    assert plain(node) == {"name": "x"}


def test_windows_line_ends_do_not_shift_the_lines() -> None:
    node = read("a: 1\r\nb: 2\r\n")

    assert node.key("b").line == 1


PLACES = [
    # a plain scalar
    ("key: abc def\n", 4, (0, 9)),
    # quoted, written as it is
    ("key: 'abc def'\n", 4, (0, 10)),
    ('key: "abc def"\n', 0, (0, 6)),
    # quoted with an escape: no telling, so the scalar's start
    ('key: "a\\tb c"\n', 2, None),
    # a block: the line and column in the file
    ("key: |\n  one\n  two three\n", 8, (2, 6)),
    ("key: |\n  one\n  two three\n", 0, (1, 2)),
    # a block with a comment, a blank line first and more indentation inside
    ("key: |- # why\n\n    one\n      two\n", 7, (3, 6)),
    # an explicit indentation indicator
    ("key: |2\n    one\n", 2, (1, 4)),
    # folded: no telling
    ("key: >\n  one\n  two\n", 4, None),
    # a plain scalar over two lines: no telling
    ("key: one\n  two\n", 4, None),
]


@PARSERS
@pytest.mark.parametrize(("text", "offset", "place"), PLACES)
def test_a_place_in_a_text_is_a_place_in_the_file(
    text: str, offset: int, place: tuple[int, int] | None, is_c_parser_wanted: bool
) -> None:
    source = Source(text, "w.yaml")
    node = parse(source, is_c_parser_wanted=is_c_parser_wanted)
    assert isinstance(node, Mapping)

    assert source.position(scalar(node, "key"), offset) == place


@PARSERS
def test_a_key_that_is_there_twice_is_refused(is_c_parser_wanted: bool) -> None:
    with pytest.raises(Refusal) as caught:
        read("a: 1\nb: 2\na: 3\n", is_c_parser_wanted=is_c_parser_wanted)

    assert caught.value.problem.message == "'a' appears twice: first in line 1"
    assert caught.value.problem.line == 3


@pytest.mark.parametrize("escape", ["\\0", "\\x00", "\\ud800"])
@PARSERS
def test_an_escape_cannot_bring_in_what_no_program_takes(escape: str, is_c_parser_wanted: bool) -> None:
    with pytest.raises(Refusal) as caught:
        read(f'a: "x{escape}y"\n', is_c_parser_wanted=is_c_parser_wanted)

    assert caught.value.problem.line == 1


@pytest.mark.parametrize("text", GOOD, ids=range(len(GOOD)))
def test_both_parsers_read_the_same_at_the_same_places(text: str) -> None:
    first, second = read(text), read(text, is_c_parser_wanted=False)

    assert list(places(first)) == list(places(second))


def places(node: Node) -> Iterator[tuple[object, ...]]:
    """Everything in a tree with its line and column; where nothing is written, the parsers differ by a blank."""
    if not (isinstance(node, Scalar) and node.text == ""):
        yield type(node), node.line, node.column
    if isinstance(node, Scalar):
        yield node.value, node.text, node.style, node.end_column if node.text else 0
    for child in node.items if isinstance(node, Sequence) else ():
        yield from places(child)
    for key, value in node.items() if isinstance(node, Mapping) else ():
        yield from places(key)
        yield from places(value)


UNREADABLE = [
    "a: [1\n",
    "a: {b\n",
    "a: 'x\n",
    "a: b: c\n",
    "\t- a\n",
    "a: @x\n",
    "- a\nb: 1\n",
    "a: *x\n",
    "%YAML 3.0\n---\na: 1\n",
]


@PARSERS
@pytest.mark.parametrize("text", UNREADABLE)
def test_what_cannot_be_read_is_refused_with_a_place(text: str, is_c_parser_wanted: bool) -> None:
    with pytest.raises(Refusal) as caught:
        read(text, is_c_parser_wanted=is_c_parser_wanted)

    assert caught.value.problem.line >= 1


def test_the_caret_stands_under_the_word_after_tabs_and_wide_characters() -> None:
    source = Source("a:\t'日本' # e\u0301\nb: x\n", "w.yaml")

    refusal = source.refuse_at("code", "here", 0, 3, 4)

    assert refusal.problem.render() == (
        "error[language.code]: w.yaml:1:4: here\n  1 | a:\t'日本' # e\u0301\n    |   \t^^^^^^"
    )


def test_of_a_very_long_line_the_part_around_the_caret_is_shown() -> None:
    source = Source("x" * 500 + "bad" + "y" * 500, "w.yaml")

    shown = source.refuse_at("code", "here", 0, 500, 3).problem.render().splitlines()

    assert shown[0] == "error[language.code]: w.yaml:1:501: here"
    assert len(shown[1]) == len("  1 | ") + 160
    assert shown[1][shown[2].index("^") :].startswith("bad")
