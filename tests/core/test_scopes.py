"""Scopes: what each of them allows."""

from __future__ import annotations

from typing import get_args

import pytest

from mulligan.core.model.scopes import ALLOWED, MEANINGS, SCOPES, allows
from mulligan.ports.server_records import Scope


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", {"read"}),
        ("send", {"send"}),
        ("run", {"run", "send", "read"}),
        ("decide", {"decide", "read"}),
        ("propose", {"propose", "read"}),
        ("write", {"write", "propose", "run", "send", "read"}),
        ("admin", {"admin", "write", "propose", "run", "send", "decide", "read"}),
        ("worker", {"worker"}),
    ],
)
def test_a_scope_allows_itself_and_what_it_implies(scope: str, allowed: set[str]) -> None:
    assert {wanted for wanted in SCOPES if allows([scope], wanted)} == allowed


def test_scopes_add_up() -> None:
    assert allows(["run", "decide"], "decide")
    assert not allows(["run", "decide"], "write")
    assert not allows([], "read")
    assert not allows(["root"], "read")
    assert not allows(["admin"], "root")


def test_what_is_implied_implies_nothing_more() -> None:
    assert [scope for scope, allowed in ALLOWED.items() for one in allowed if not ALLOWED[one] <= allowed] == []


def test_every_scope_has_a_meaning() -> None:
    assert set(SCOPES) == set(MEANINGS) == set(get_args(Scope))
