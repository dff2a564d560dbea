"""The uid of a child run, and finding the calling place by it."""

from __future__ import annotations

import pytest

from mulligan.core.effects.child_runs import calling_place, child_uid
from mulligan.core.state.state import Run


@pytest.mark.parametrize("place", ["build", "check[3].0", "a.on_failure@2.0", "a.undo@1"])
def test_a_called_run_is_named_after_its_caller_and_leads_back_to_it(place: str):
    parent = Run(uid="7f3a")

    child = Run(uid=child_uid(parent, place, 2))

    assert child.uid == f"7f3a.{place}.2"
    assert calling_place(parent.uid, child.uid) == place


def test_a_run_without_a_name_gives_none():
    assert child_uid(Run(), "build", 1) == ""


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        # Written before runs had names.
        ("", "build.1"),
        ("", ".build.1"),
        ("", ""),
        ("7f3a", ""),
        # Called by somebody else.
        ("7f3a", "9c21.build.1"),
        # No call of its own: the run itself.
        ("7f3a", "7f3a"),
    ],
)
def test_where_the_names_do_not_say_so_nobody_called(parent: str, child: str):
    assert calling_place(parent, child) == ""
