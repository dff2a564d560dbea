"""DBOS: one workflow with one step that says hello, on SQLite."""

from __future__ import annotations

from dbos import DBOS
from dbos_app import launched


@DBOS.step()
def hello() -> str:
    return "hello"


@DBOS.workflow()
def greet() -> str:
    return hello()


with launched("sqlite"):
    assert greet() == "hello"
