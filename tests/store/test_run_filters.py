"""The table of filters: on every store each field of `RunFilter` leaves out runs, alone and beside each other field."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields, replace
from tests.support.keeping import T0, commit, new_run, started

from mulligan.core.effects.run_lists import RunFailures, RunFilter
from mulligan.ports import NewRun, Store
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.store.run_filters import FILTERS

pytestmark = pytest.mark.postgres

# For each field a value that matches some of the runs of `stored`, and not all of them.
EXAMPLES: dict[str, Any] = {
    "statuses": ("failed",),
    "workflows": ("weekly",),
    "since": T0 + timedelta(hours=1),
    "until": T0 + timedelta(hours=1),
    "attributes": (("label", "team", "data"),),
    "starters": ("Zoë",),
    "failure_codes": ("TIMEOUT",),
    "words": ("night",),
    "with_children": False,
    "project": "blue",
}
# The same for the question of a face; labels, inputs and text become attributes and words.
ASKED: dict[str, Any] = {
    **{name: value for name, value in EXAMPLES.items() if name not in ("attributes", "words", "project")},
    "with_children": True,
    "inputs": {"region": "east"},
    "labels": {"team": "data"},
    "text": "night",
}


def weekly(**changes: Any) -> NewRun:
    new = new_run("weekly", **changes)
    return replace(new, request=replace(new.request, by="Zoë", at=T0 + timedelta(hours=2), labels={"team": "data"}))


def stored(store: Store) -> None:
    """Runs that differ in all that they are found by: a failed one with a child run, and others."""
    parent = started(store, name="nightly")
    failures = RunFailures(("TIMEOUT",), "disk")
    store.commit([commit(parent, 0, status="failed", failures=failures, is_last=True, children=[new_run("child")])])
    store.create([weekly(), replace(weekly(), project="blue"), new_run("nightly")])


def found(store: Store, **wanted: Any) -> set[int]:
    wanted = {"with_children": True, **wanted}
    run_ids = [record.run_id for record in store.lists.find(RunFilter(**wanted), limit=50)]
    assert store.lists.count(RunFilter(**wanted), limit=50) == len(run_ids)
    return set(run_ids)


def test_each_field_leaves_out_runs_alone_and_beside_each_other_field(store: Store) -> None:
    stored(store)

    by_field = {name: found(store, **{name: EXAMPLES[name]}) for name in RunFilter.__struct_fields__}

    assert [name for name, run_ids in by_field.items() if not run_ids or run_ids == found(store)] == []
    for one, other in combinations(by_field, 2):
        wanted = {one: EXAMPLES[one], other: EXAMPLES[other]}
        assert found(store, **wanted) == by_field[one] & by_field[other], wanted
        top = found(store, with_children=False)
        assert found(store, **{"with_children": False, **wanted}) == by_field[one] & by_field[other] & top, wanted


def test_the_table_has_a_row_for_each_field_and_knows_the_value_that_accepts_every_run() -> None:
    accepts_all = {field.name: field.default for field in fields(RunFilter)}

    assert {name: one.empty for name, one in FILTERS.items()} == {**accepts_all, "with_children": True}


def test_a_field_that_a_face_asks_for_reaches_the_filter() -> None:
    """`limit` and `before` say which page it is."""
    names = set(RunQuery.__struct_fields__) - {"limit", "before"}

    assert names == set(ASKED)
    assert [name for name in names if RunQuery(**{name: ASKED[name]}).filter == RunQuery().filter] == []


def test_a_question_whose_text_no_store_can_hold_matches_nothing_whatever_field_has_it() -> None:
    texts = {
        name: type(value)([("a\0", "b")])
        if isinstance(value, dict)
        else ("a\0",)
        if isinstance(value, tuple)
        else "a\0"
        for name, value in ASKED.items()
        if isinstance(value, dict | tuple | str)
    }

    assert {name for name, value in texts.items() if RunQuery(**{name: value}).can_match} == set()
    assert RunQuery(**ASKED).can_match


def test_a_server_refuses_a_filter_that_it_does_not_know() -> None:
    sent = msgspec.json.encode(RunFilter(workflows=("nightly",)))

    assert sent == b'{"workflows":["nightly"]}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(sent.replace(b"workflows", b"weather"), type=RunFilter)
