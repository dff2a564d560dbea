"""Match values with the placeholders of a query. No value and no placeholder may be left over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mulligan.worker.databases.failures import invalid
from mulligan.worker.databases.statements import Dialect, Placeholder, Statement

# The names that the language gives to a `${…}` (see `language.actions`), and this module to a `?`.
_HOLE = "mulligan_"
_ASKED = "mulligan_asked_"


def bind_parameters(parsed: list[Statement], params: object, dialect: Dialect) -> dict[str, Any]:
    """Return the values by the names that the statements use. INPUT_INVALID if they do not match."""
    if isinstance(params, list):
        return _bind_list(parsed, params)
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise invalid(f"'params' must be a mapping or a list, and is of type '{type(params).__name__}'")
    for statement in parsed:
        statement.placeholders = _without_operators(statement.placeholders, dialect)
    names = {placeholder.name for statement in parsed for placeholder in statement.placeholders}
    _check_names(names, params)
    return params


def _without_operators(placeholders: list[Placeholder], dialect: Dialect) -> list[Placeholder]:
    """Remove the `?` operators of PostgreSQL, which test JSON keys; elsewhere `?` is an unnamed placeholder."""
    unnamed = next((placeholder for placeholder in placeholders if placeholder.is_question_mark), None)
    if unnamed is not None and dialect is not Dialect.POSTGRES:
        raise invalid(f"the query has '?{unnamed.name}', which needs 'params' to be a list: write ':name'")
    return [placeholder for placeholder in placeholders if not placeholder.is_question_mark]


def _check_names(names: set[str], params: Mapping[str, Any]) -> None:
    for name in sorted(names - params.keys()):
        raise invalid(f"the query has ':{name}', but 'params' has no value for it")
    for name in sorted(params.keys() - names):
        if name.startswith(_HOLE):
            raise invalid("a '${…}' is inside quotes or a comment, where no value can be bound")
        raise invalid(f"'params' has a value for '{name}', but the query has no ':{name}'")


def _bind_list(parsed: list[Statement], params: list[Any]) -> dict[str, Any]:
    """Give the n-th value to the n-th `?`, over all statements."""
    count = 0
    for statement in parsed:
        for at, placeholder in enumerate(statement.placeholders):
            if placeholder.name:
                sign = "?" if placeholder.is_question_mark else ":"
                raise invalid(
                    f"the query has '{sign}{placeholder.name}', but 'params' is a list: write '?' for each value"
                )
            statement.placeholders[at] = replace(placeholder, name=f"{_ASKED}{count}")
            count += 1
    if count != len(params):
        raise invalid(f"the query has {count} '?', but 'params' has {len(params)} values")
    return {f"{_ASKED}{at}": value for at, value in enumerate(params)}
