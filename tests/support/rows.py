"""By day, a table of rows is one item of pytest: a function that takes nothing but its row runs in a loop.

To collect, schedule and report an item costs more than most rows take to be tested. All rows run, also behind one that
fails, and the failure names each. At night, with `-n 0` or `-k`, and where tests are named, each row is an item, and so
it is with `pytestmark = pytest.mark.one_by_one`: for rows that take long, so that several processes share them.
"""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import is_hypothesis_test

from .nightly import IS_NIGHTLY

# How much of a row without an id is shown.
SHOWN = 200
# Fixtures of single tests that give the same to each row: what they replace stays replaced until the last.
SHARED = {"monkeypatch", "_forked", "forked_children", "_no_home_of_ones_own"}


class Table(NamedTuple):
    """One `parametrize` above a function."""

    names: Sequence[str]
    rows: list[tuple[Any, ...]]
    ids: list[str]


def is_folding(config: pytest.Config) -> bool:
    """Whether rows are run in loops: in one of several processes, by day, and nobody has asked for some of them."""
    is_one_of_several = "PYTEST_XDIST_WORKER" in os.environ
    return is_one_of_several and not (IS_NIGHTLY or config.option.keyword or any("::" in one for one in config.args))


def folded(collector: pytest.Module, name: str, function: object) -> pytest.Function | None:
    """The one item for all rows of a test; none if it has no table, or takes more than its row."""
    if not (name.startswith("test") and inspect.isfunction(function)) or is_hypothesis_test(function):
        return None
    tables = _tables(function)
    if not tables or _takes(function) != {one for table in tables for one in table.names}:
        return None
    asked_for = {name for mark in collector.iter_markers("usefixtures") for name in mark.args}
    if collector.get_closest_marker("one_by_one") or not asked_for <= SHARED:
        return None
    item: pytest.Function = pytest.Function.from_parent(collector, name=name, callobj=in_a_loop(function, tables))
    return item if _is_for_all_rows(item) else None


def in_a_loop(function: Callable[..., object], tables: Sequence[Table]) -> Callable[[], None]:
    """All rows of a function. The first failure is raised in the end, with the names of the others."""

    def run() -> None:
        failed: list[tuple[str, BaseException]] = []
        skips: list[BaseException] = []
        count = 0
        for rows in itertools.product(*(zip(table.ids, table.rows, strict=True) for table in tables)):
            count += 1
            values = [value for _, row in rows for value in row]
            try:
                function(**dict(zip(names, values, strict=True)))
            except pytest.skip.Exception as skip:
                skips.append(skip)
            except (Exception, pytest.fail.Exception) as error:
                failed.append(("-".join(name for name, _ in rows), error))
        if len(skips) == count:
            raise skips[0]
        if failed:
            error = failed[0][1]
            error.add_note("\n".join([f"{len(failed)} of {count} rows failed:", *(f"  [{one}]" for one, _ in failed)]))
            raise error

    names = [name for table in tables for name in table.names]
    run.__doc__ = function.__doc__
    return run


def _tables(function: Callable[..., object]) -> list[Table]:
    """Its tables, the lowest first; none if a mark says more about the function or about one of its rows."""
    found = []
    for mark in getattr(function, "pytestmark", []):
        table = _table(mark)
        if table is None:
            return []
        found.append(table)
    return found


def _table(mark: pytest.Mark) -> Table | None:
    if mark.name != "parametrize" or not mark.kwargs.keys() <= {"ids", "argnames", "argvalues"} or len(mark.args) > 2:
        return None
    arguments = {**dict(zip(("argnames", "argvalues"), mark.args, strict=False)), **mark.kwargs}
    names = arguments["argnames"]
    names = [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)
    # What gives its rows once has none for whoever comes later.
    if isinstance(arguments["argvalues"], Iterator):
        return None
    rows, ids = [], []
    for number, given in enumerate(arguments["argvalues"]):
        is_set = hasattr(given, "marks")
        if is_set and given.marks:
            return None
        values = tuple(given.values) if is_set else (given,) if len(names) == 1 else tuple(given)
        rows.append(values)
        ids.append((given.id if is_set else None) or _id(arguments.get("ids"), number, values))
    return Table(names, rows, ids) if rows else None


def _id(ids: Any, number: int, values: tuple[Any, ...]) -> str:
    if callable(ids):
        return "-".join(str(ids(value) or repr(value)) for value in values)
    return str(ids[number]) if isinstance(ids, Sequence) else ", ".join(map(repr, values))[:SHOWN]


def _takes(function: Callable[..., object]) -> set[str]:
    """Its parameters; those with a default are left alone, as pytest does."""
    return {one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty}


def _is_for_all_rows(item: pytest.Function) -> bool:
    """Whether nothing is set up for it that a row could leave to the next one."""
    found = ((name, item._fixtureinfo.name2fixturedefs.get(name, ())) for name in item.fixturenames)
    return all(name in SHARED or all(one.scope != "function" for one in given) for name, given in found)
