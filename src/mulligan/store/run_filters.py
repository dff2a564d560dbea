"""The filters of runs: one row for each field of `RunFilter`, read by every store.

A row says how a database is asked for a field, how a run in memory is, and which index lists its runs. A field of
`RunFilter` without a row is an error when this module is imported: no store may ignore what somebody asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from mulligan.core.effects.run_lists import Attribute, RunFilter
from mulligan.ports import RunRecord
from mulligan.store.encoding import micros
from mulligan.store.sql.sql_arrays import Texts


class SearchedRun(Protocol):
    """What a run in memory is found by. A child run has the attributes and the words of the root of its tree."""

    @property
    def record(self) -> RunRecord: ...

    @property
    def attributes(self) -> Collection[Attribute]: ...

    @property
    def failure_codes(self) -> Collection[str]: ...

    @property
    def words(self) -> Collection[str]: ...


class Words(tuple[str, ...]):
    """A parameter: beginnings of words, for which each database has a form of its own."""


class Lookup(msgspec.Struct, frozen=True):
    """A statement that chooses among given runs, with its other parameters."""

    statement: str
    params: tuple[Any, ...]


class Index(msgspec.Struct, frozen=True):
    """Lists of the runs that match a value, the newest first: what `sql_lists` begins with."""

    statement: str
    # For each list that has all runs that match: the parameters of the statements whose runs are in it.
    lists: Callable[[Any], Sequence[Sequence[dict[str, Any]]]]
    # The other indexes have no child runs, which would cost a map of ten thousand calls too much.
    has_children: bool = False


class Filter(msgspec.Struct, frozen=True):
    """How the runs are found that match one field of `RunFilter`."""

    # Whether a run matches this value of the field, which asks for something.
    matches: Callable[[SearchedRun, Any], bool]
    # The condition in `matching_runs`, as in `shared.sql`: its parameter has the name of the field, and an empty field
    # accepts every run. Or, for what other tables have, lookups for a value, with or without child runs.
    in_database: str | Callable[[Any, bool], Sequence[Lookup]]
    parameter: Callable[[Any], Any] = lambda value: value
    # Lookups that take longer than `matching_runs`, so that they are made after it.
    is_slow: bool = False
    listed_by: Index | None = None
    # The value that accepts every run.
    empty: Any = ()


def micros_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def _any_of(column: str, field: str) -> str:
    values = f"%({field})s::text[]"
    return f"(cardinality({values}) = 0 OR {column} = ANY ({values}))"


def _by_value(values: Sequence[str]) -> list[list[dict[str, Any]]]:
    return [[{"value": value} for value in dict.fromkeys(values)]]


def _with_attributes(wanted: Sequence[Attribute], with_children: bool) -> list[Lookup]:
    statement = "runs_with_attribute" if with_children else "top_runs_with_attribute"
    return [Lookup(statement, attribute) for attribute in wanted]


FILTERS: dict[str, Filter] = {
    # `sql_lists` has an index for statuses and projects together.
    "statuses": Filter(
        matches=lambda run, wanted: run.record.status in wanted,
        in_database=_any_of("status", "statuses"),
        parameter=Texts,
    ),
    "project": Filter(
        matches=lambda run, wanted: run.record.project == wanted,
        in_database="(%(project)s::text IS NULL OR project = %(project)s::text)",
        empty=None,
    ),
    "with_children": Filter(
        matches=lambda run, _: run.record.parent_run_id is None,
        in_database="(%(with_children)s::boolean OR parent_run_id IS NULL)",
        empty=True,
    ),
    "workflows": Filter(
        matches=lambda run, wanted: run.record.workflow in wanted,
        in_database=_any_of("workflow", "workflows"),
        parameter=Texts,
        listed_by=Index("candidates_by_workflow", _by_value),
    ),
    "starters": Filter(
        matches=lambda run, wanted: run.record.started_by in wanted,
        in_database=_any_of("started_by", "starters"),
        parameter=Texts,
        listed_by=Index("candidates_by_starter", _by_value),
    ),
    # `sql_lists` knows between which ids these times are.
    "since": Filter(
        matches=lambda run, wanted: run.record.created_at >= wanted,
        in_database="(%(since)s::bigint IS NULL OR created_at >= %(since)s::bigint)",
        parameter=micros_or_none,
        empty=None,
    ),
    "until": Filter(
        matches=lambda run, wanted: run.record.created_at < wanted,
        in_database="(%(until)s::bigint IS NULL OR created_at < %(until)s::bigint)",
        parameter=micros_or_none,
        empty=None,
    ),
    "failure_codes": Filter(
        matches=lambda run, wanted: not set(wanted).isdisjoint(run.failure_codes),
        in_database=lambda wanted, _: [Lookup("runs_with_failure", (Texts(wanted),))],
        listed_by=Index(
            "candidates_by_attribute",
            lambda wanted: [[{"kind": "failure", "named": code, "value": ""} for code in wanted]],
            has_children=True,
        ),
    ),
    "attributes": Filter(
        matches=lambda run, wanted: set(wanted) <= set(run.attributes),
        in_database=_with_attributes,
        listed_by=Index(
            "candidates_by_attribute",
            lambda wanted: [[{"kind": kind, "named": name, "value": value}] for kind, name, value in wanted],
        ),
    ),
    "words": Filter(
        matches=lambda run, wanted: all(any(one.startswith(word) for one in run.words) for word in wanted),
        in_database=lambda wanted, _: [Lookup("runs_with_words", (Words(wanted),))],
        is_slow=True,
        listed_by=Index("candidates_by_words", lambda wanted: [[{"words": wanted}]]),
    ),
}
if FILTERS.keys() != set(RunFilter.__struct_fields__):
    raise TypeError(f"not in both RunFilter and FILTERS: {FILTERS.keys() ^ set(RunFilter.__struct_fields__)}")

# What `matching_runs` asks of each run.
CONDITIONS = "\n      AND ".join(one.in_database for one in FILTERS.values() if isinstance(one.in_database, str))


def asked_fields(wanted: RunFilter) -> dict[str, Any]:
    """The fields by which a filter leaves out runs, with their values. Without `with_children` it leaves them out."""
    values = {name: getattr(wanted, name) for name in FILTERS}
    # An empty list asks for nothing, as an empty tuple does.
    return {name: value for name, value in values.items() if value != FILTERS[name].empty and value != []}


def is_matching(run: SearchedRun, asked: dict[str, Any]) -> bool:
    return all(FILTERS[name].matches(run, value) for name, value in asked.items())


def lookups(wanted: RunFilter, *, is_slow: bool) -> list[Lookup]:
    """What other tables than `runs` are asked for."""
    return [
        lookup
        for name, value in asked_fields(wanted).items()
        if FILTERS[name].is_slow == is_slow and callable(in_database := FILTERS[name].in_database)
        for lookup in in_database(value, wanted.with_children)
    ]


def parameters(wanted: RunFilter) -> dict[str, Any]:
    """The parameters of the conditions in `matching_runs`."""
    named = {name: one for name, one in FILTERS.items() if isinstance(one.in_database, str)}
    return {name: one.parameter(getattr(wanted, name)) for name, one in named.items()}
