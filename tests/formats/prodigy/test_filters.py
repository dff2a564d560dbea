"""Prodigy's filters, paths and orders: what they say of items, and what is said against those that say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.formats.prodigy.queries import GrammarError, parse_filter, parse_order, parse_path

ITEM: dict[str, Any] = {
    "score": 7,
    "ratio": 0.5,
    "name": "core",
    "path": "src/core.rs",
    "tags": ["urgent", "old"],
    "owner": {"name": None, "id": 3},
    "done": True,
    "text": "7",
}

HOLDS = {
    # Comparisons of numbers, texts and truth.
    "score == 7": True,
    "score != 7": False,
    "score > 6 && score < 8": True,
    "score >= 7.0 && score <= 7": True,
    "ratio > -1": True,
    "name == 'core'": True,
    'name == "web"': False,
    "name < 'd'": True,
    "done == true": True,
    "done": True,
    "!done": False,
    # What cannot be compared does not hold, and what is not there is null.
    "text == 7": False,
    "text > 5": False,
    "done == 1": False,
    "missing > 3": False,
    "missing == null": True,
    "missing != 'x'": True,
    "owner.name == null": True,
    "tags[5] == null": True,
    # `item.` may be left out.
    "item.score == 7": True,
    "item.owner.id == 3": True,
    "tags[0] == 'urgent'": True,
    "tags[-1] == 'old'": True,
    # Words for signs, and what binds closest.
    "score == 1 OR score == 7 AND done": True,
    "(score == 1 or score == 7) and not done": False,
    "NOT score == 1": True,
    # Choices and patterns.
    "score in [1, 7]": True,
    "name in ['web', 'docs']": False,
    "name in []": False,
    r"path matches '\.rs$'": True,
    r"matches(path, '^src/')": True,
    "score matches '7'": False,
    # Functions.
    "contains(tags, 'urgent')": True,
    "contains(path, 'core')": True,
    "contains(score, 7)": False,
    "starts_with(path, 'src')": True,
    "ends_with(path, '.py')": False,
    "is_null(owner.name) && is_not_null(owner.id)": True,
    "is_number(score) && !is_number(done) && !is_number(text)": True,
    "is_string(name) && is_bool(done) && is_array(tags) && is_object(owner)": True,
    "length(tags) == 2 && length(name) > 3": True,
    "length(score) == null": True,
    # A quote in a text.
    r"name != 'it\'s'": True,
}


@pytest.mark.parametrize(("text", "holds"), HOLDS.items())
def test_a_filter_says_which_items_hold(text: str, holds: bool) -> None:
    assert parse_filter(text)(ITEM) is holds


def test_an_item_that_is_a_text_is_itself_under_both_of_its_names() -> None:
    assert parse_filter("item == 'a' && item.item == 'a' && item matches 'a'")("a")
    assert not parse_filter("item == 'a'")("b")


def test_a_filter_may_have_thousands_of_parts() -> None:
    holds = parse_filter(" || ".join(f"score == {number}" for number in range(3000)))

    assert holds({"score": 2999})
    assert not holds({"score": 3000})


def test_an_item_with_a_field_of_that_name_is_asked_for_the_field() -> None:
    assert parse_filter("item == 'a'")({"item": "a"})


REFUSED = {
    "score >": ("the filter ends too early", 6, 1),
    "": ("the filter ends too early", 0, 1),
    "score % 2 == 0": ("'%' is not expected in a filter", 6, 1),
    "upper(name) == 'X'": ("there is no function 'upper' in filters", 0, 5),
    "score == 1 score": ("'score' is not expected in a filter here", 11, 5),
    "(score == 1": ("the filter ends too early", 10, 1),
    "contains(tags)": ("'contains' takes 2 arguments, but has 1", 0, 8),
    "is_null()": ("'is_null' takes 1 argument, but has 0", 0, 7),
    "score in 5": ("'5' is not expected in a filter here", 9, 1),
    "name matches other": ("'other' is not expected in a filter here", 13, 5),
    "name matches '('": ("'(' is not a regular expression: missing ), unterminated subpattern at position 0", 13, 3),
    f"{'(' * 51}a{')' * 51}": ("conditions are nested more than 50 levels deep", 50, 1),
    f"{'!' * 51}a": ("conditions are nested more than 50 levels deep", 50, 1),
    "name == 'open": ("''' is not expected in a filter", 8, 1),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_what_is_no_filter_is_refused_with_its_place(text: str, said: tuple[str, int, int]) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_filter(text)

    assert (caught.value.message, caught.value.offset, caught.value.length) == said


# -- paths -----------------------------------------------------------------------------------------------------------

VALUE: Any = {
    "items": [{"n": 1, "tags": ["a"]}, {"n": 5, "tags": ["b", "c"]}],
    "deep": {"n": 9, "more": {"n": 10}},
    "a-b": 3,
    "a b": 4,
}
FOUND = {
    # A list is its items, anything else is one item.
    "$": [VALUE],
    "$.items": VALUE["items"],
    "items": VALUE["items"],
    "$.items[*]": VALUE["items"],
    "$.deep.n": [9],
    "$.items[1].tags": ["b", "c"],
    # Lists of lists stay lists, where the path may lead to several.
    "$.items[*].tags": [["a"], ["b", "c"]],
    "$.items[*].tags[*]": ["a", "b", "c"],
    "$.items[0]": [VALUE["items"][0]],
    "$.items[-1].n": [5],
    "$.items[0:1]": [VALUE["items"][0]],
    "$.items[1:]": [VALUE["items"][1]],
    "$..n": [1, 5, 9, 10],
    "$.deep.*": [9, {"n": 10}],
    "$['a b']": [4],
    '$["a-b"]': [3],
    "$.a-b": [3],
    "$.items[?(@.n > 2)]": [VALUE["items"][1]],
    "$.items[?@.n < 2].tags[*]": ["a"],
    "$.items[?(@.n > 0 && (@.n < 9))].n": [1, 5],
    # What is not there is nothing, whatever it is looked for in.
    "$.missing": [],
    "$.items[7]": [],
    "$.deep[0]": [],
    "$.a-b.c": [],
}


@pytest.mark.parametrize(("path", "found"), FOUND.items())
def test_a_path_finds_items(path: str, found: list[Any]) -> None:
    assert parse_path(path)(VALUE) == found


BAD_PATHS = {
    "$.items[": ("'[' is not expected in a path", 7, 1),
    "$items": ("'items' is not expected in a path", 1, 5),
    "$.": ("'.' is not expected in a path", 1, 1),
    "$.items[?(@.n >)]": ("the filter ends too early", 14, 1),
}


@pytest.mark.parametrize(("path", "said"), BAD_PATHS.items())
def test_what_is_no_path_is_refused_with_its_place(path: str, said: tuple[str, int, int]) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_path(path)

    assert (caught.value.message, caught.value.offset, caught.value.length) == said


# -- orders ----------------------------------------------------------------------------------------------------------

ITEMS: list[Any] = [{"a": 1, "b": "y"}, {"b": "n"}, {"a": 3, "b": "m"}, {"a": 1, "b": "x"}]
ORDERS = {
    # Nulls come last, whichever way it goes, and who is alike stays as it was.
    "a": ["y", "x", "m", "n"],
    "a DESC": ["m", "y", "x", "n"],
    "item.a desc": ["m", "y", "x", "n"],
    "a DESC NULLS FIRST": ["n", "m", "y", "x"],
    "a ASC NULLS LAST, b": ["x", "y", "m", "n"],
    "a, b DESC": ["y", "x", "m", "n"],
    "missing": ["y", "n", "m", "x"],
}


@pytest.mark.parametrize(("text", "sorted_items"), ORDERS.items())
def test_items_are_sorted_by_each_field_in_turn(text: str, sorted_items: list[str]) -> None:
    assert [item["b"] for item in parse_order(text)(ITEMS)] == sorted_items


def test_values_of_unlike_types_sort_by_type() -> None:
    items = [{"a": "x"}, {"a": [1]}, {"a": 2}, {"a": True}]

    assert [item["a"] for item in parse_order("a")(items)] == [True, 2, "x", [1]]


@pytest.mark.parametrize("text", ["a UPWARDS", "a NULLS", "a,,b", "", "1"])
def test_what_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(GrammarError):
        parse_order(text)
