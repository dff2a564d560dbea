from __future__ import annotations

import pytest

from mulligan.core.model.place_keys import is_at_or_below, item_key, step_name, undo_key


@pytest.mark.parametrize(
    "key",
    [
        "check",
        "check[3]",
        "check[3].0",
        "check.on_failure@2.0",
        "check[3].0.on_failure@1.0.script@2",
        undo_key("check", 1),
    ],
)
def test_every_place_names_the_step_that_it_is_a_part_of(key: str) -> None:
    assert step_name(key) == "check"
    assert is_at_or_below(key, "check")


@pytest.mark.parametrize("key", ["", "checks", "check-all", "check_all[0]", "chec"])
def test_a_step_whose_name_begins_alike_is_another_step(key: str) -> None:
    assert not is_at_or_below(key, "check")


def test_a_part_has_parts_of_its_own() -> None:
    third = item_key("check", 3)

    assert [is_at_or_below(key, third) for key in ("check[3].0", "check[3]", "check[30]", "check")] == [
        True,
        True,
        False,
        False,
    ]
