"""Items by name: what tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.history.item_names import item_names


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
