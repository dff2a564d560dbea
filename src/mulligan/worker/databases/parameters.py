"""Which value belongs to which place in a query. Both must be whole: none is left over, none is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mulligan.worker.databases.failures import invalid
from mulligan.worker.databases.statements import Dialect, Spot, Statement

# What the language puts in the place of a `${…}` (see `language.actions`), and we in that of a `?`.
_HOLE = "mulligan_"
_ASKED = "mulligan_asked_"


def named(found: list[Statement], params: object, dialect: Dialect) -> dict[str, Any]:
    """The values by the names that the statements have for them. INPUT_INVALID where they do not fit."""
    if isinstance(params, list):
        return _by_order(found, params)
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise invalid(f"'params' is of type '{type(params).__name__}', and a mapping or a list is expected")
    for statement in found:
        statement.spots = _without_operators(statement.spots, dialect)
    names = {spot.name for statement in found for spot in statement.spots}
    _refuse_misfits(names, params)
    return params


def _without_operators(spots: list[Spot], dialect: Dialect) -> list[Spot]:
    """In PostgreSQL `?` asks whether JSON has a key; elsewhere it is a value without a name."""
    asked = next((spot for spot in spots if spot.is_asked), None)
    if asked is not None and dialect is not Dialect.POSTGRES:
        raise invalid(f"the query has '?{asked.name}', and only 'params' that are a list have no names: write ':name'")
    return [spot for spot in spots if not spot.is_asked]


def _refuse_misfits(names: set[str], params: Mapping[str, Any]) -> None:
    for name in sorted(names - params.keys()):
        raise invalid(f"the query has ':{name}', and 'params' has no value for it")
    for name in sorted(params.keys() - names):
        if name.startswith(_HOLE):
            raise invalid("a '${…}' stands inside quotes or a comment, where nothing is bound")
        raise invalid(f"'params' has a value for '{name}', and the query has no ':{name}'")


def _by_order(found: list[Statement], params: list[Any]) -> dict[str, Any]:
    """The n-th value is for the n-th `?`, over all statements."""
    count = 0
    for statement in found:
        for at, spot in enumerate(statement.spots):
            if spot.name:
                sign = "?" if spot.is_asked else ":"
                raise invalid(f"the query has '{sign}{spot.name}', and 'params' is a list: write '?' for each value")
            statement.spots[at] = replace(spot, name=f"{_ASKED}{count}")
            count += 1
    if count != len(params):
        raise invalid(f"the query has {count} '?', and 'params' has {len(params)} values")
    return {f"{_ASKED}{at}": value for at, value in enumerate(params)}
