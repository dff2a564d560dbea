"""Items by name: what tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.history.item_names import NAMED_MAX, find_item, index_names, item_names, place_key, place_name


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["east", "west"], ["east", "west"]),
        ([1, 2.5, None, True], ["1", "2.5", "null", "true"]),
        # A key that is different in every item is enough.
        ([{"kind": "a", "id": 7}, {"kind": "a", "id": 8}], ["id=7", "id=8"]),
        # A text says more than a number.
        ([{"n": 1, "region": "east"}, {"n": 2, "region": "west"}], ["east", "west"]),
        # No single key tells them apart: those that differ do together.
        (
            [{"n": 1, "seed": 1, "of": 9}, {"n": 1, "seed": 2, "of": 9}, {"n": 2, "seed": 1, "of": 9}],
            ["n=1, seed=1", "n=1, seed=2", "n=2, seed=1"],
        ),
        ([{"n": 1}], ["n=1"]),
        # Equal ones keep their number, and so does what has no name.
        (["a", "a", ""], ["a #0", "a #1", "#2"]),
        ([{"$artifact": {"name": "1/a/x.json", "size": 1, "sha256": "0", "format": "json"}}], ["#0"]),
        ([], []),
        ([["x", 1]], ['["x",1]']),
        # Nobody writes lines or commands a terminal.
        (["a\nb\x1b[31m"], ["a b"]),
    ],
)
def test_items_are_named_by_what_tells_them_apart(values: list[Any], names: list[str]) -> None:
    assert item_names(values) == names


def test_a_long_value_is_cut() -> None:
    [name] = item_names(["x" * 500])

    assert (len(name), name[-1]) == (48, "…")


# -- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["east", "west"], ["east", "west"]),
        # A number would read as the index of another item.
        ([3, 1, "2", -1], ["0", "1", "2", "3"]),
        (["west", "east", "west"], ["west #0", "east", "west #2"]),
        (["", "\x1b[31m"], ["0", "1"]),
        ([{"id": "a", "n": 1}, {"id": "b", "n": 1}], ["a", "b"]),
        (["x"] * (NAMED_MAX + 1), [str(index) for index in range(NAMED_MAX + 1)]),
    ],
    ids=["texts", "numbers", "duplicates", "unprintable", "mappings", "many"],
)
def test_between_the_brackets_stands_a_name_or_an_index(values: list[Any], names: list[str]) -> None:
    assert index_names(values) == names


@pytest.mark.parametrize(
    ("key", "commands", "name"),
    [
        ("load", 1, "load"),
        ("load[1]", 1, "load[west]"),
        ("load[1].0", 1, "load[west]"),
        ("load[1].1", 2, "load[west] command 2"),
        ("load[1].0.on_failure@2.0", 1, "load[west].on_failure@2.0"),
        ("load[1].0.script@1", 2, "load[west] command 1.script@1"),
        ("load[7]", 1, "load[7]"),
        ("load.undo@1", 1, "load.undo@1"),
    ],
)
def test_a_place_of_an_item_has_the_name_of_the_item(key: str, commands: int, name: str) -> None:
    assert place_name(key, ["east", "west"], commands) == name


@pytest.mark.parametrize(
    ("values", "word", "index"),
    [
        (["east", "west"], "west", 1),
        (["east", "west"], "0", 0),
        # The index wins: item 1 is not the one with the value 1.
        ([1, 0], "1", 1),
        (["west", "west"], "west", None),
        (["west", "west"], "west #1", 1),
        (["east"], "north", None),
        (["east"], "9", None),
    ],
)
def test_a_word_names_an_item_by_its_index_or_by_its_name(values: list[Any], word: str, index: int | None) -> None:
    assert find_item(values, word) == index


@pytest.mark.parametrize(
    ("key", "commands"),
    [
        ("load[1]", 1),
        ("load[1].1", 2),
        ("load[1].0.on_failure@2.0", 1),
        ("load[1].0.script@1", 2),
        ("load[2].1", 2),
        ("load[3].0.script@1", 1),
    ],
)
def test_the_name_of_a_place_leads_back_to_it(key: str, commands: int) -> None:
    names = ["east", "west", "we.st] command 2", "a[b]"]

    assert place_key(place_name(key, names, commands), names) == key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        # Of an only command the item is meant.
        ("load[west]", "load[1]"),
        ("load[west].1", "load[1].1"),
        ("load[north]", None),
        ("load[west", None),
        ("load[west]x", None),
        ("load[west] command 0", None),
        ("load", None),
    ],
)
def test_a_name_that_somebody_types_is_looked_up(name: str, key: str | None) -> None:
    assert place_key(name, ["east", "west"]) == key
