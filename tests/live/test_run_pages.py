"""A run in parts: pages of steps and items, what has changed since an event, and pages of what waits."""

from __future__ import annotations

import pytest
from tests.support.runner import Live

from mulligan.core.state.state import STATE_TABLES, State
from mulligan.errors import InputInvalid, UnknownRun, UnknownStep
from mulligan.language import load_text
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.stored import run_cache
from mulligan.service.runs.views.run_pages import ItemQuery, StepQuery
from mulligan.service.service import Service

FLOW = """
name: flow
steps:
  - {step: fetch, matrix: {n: 1..3}, shell: 'test ${matrix.n} != 2', continue_on_error: true}
  - step: check
    needs: [fetch]
    map: {over: "${[1, 2, 3, 4]}", as: one, on_item_failure: collect, max_parallel: 1}
    do: [{shell: 'test ${one} != 3'}]
  - {step: gate, needs: [check], approve: {message: go?}}
  - {step: last, needs: [gate], shell: 'false'}
"""


def is_same(one: State, other: State) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in STATE_TABLES)


def test_a_run_is_read_in_pages_and_moved_on_by_its_log(live: Live) -> None:
    service = live.service
    run_id = live.run(FLOW).run_id

    first = service.runs.step_page(run_id, StepQuery(limit=2))
    second = service.runs.step_page(run_id, StepQuery(limit=2, after=first.next or ""))
    third = service.runs.step_page(run_id, StepQuery(limit=2, after=second.next or ""))
    failed = service.runs.step_page(run_id, StepQuery(statuses=("failed",)))

    pages = (first, second, third)
    assert [[step.name for step in page.steps] for page in pages] == [
        ["fetch_1", "fetch_2"],
        ["fetch_3", "check"],
        ["gate", "last"],
    ]
    assert [(page.next, page.total, page.seq) for page in pages] == [
        (name, 6, service.runs.record(run_id).seq) for name in ("fetch_2", "check", None)
    ]
    assert first.counts == {"completed": 3, "failed": 1, "running": 1, "waiting": 1}
    assert ([step.name for step in failed.steps], failed.total) == (["fetch_2"], 1)
    assert failed.steps[0].failure.startswith("EXIT_NONZERO 1")
    assert second.steps[1].items == {"total": 4, "completed": 3, "failed": 1}
    assert [step.name for step in service.runs.step_page(run_id, StepQuery(text="etch_3")).steps] == ["fetch_3"]

    # Items, and the steps of a matrix.
    items = service.runs.item_page(run_id, "check", ItemQuery(limit=3))
    rest = service.runs.item_page(run_id, "check", ItemQuery(limit=3, after=items.next or 0))
    broken = service.runs.item_page(run_id, "check", ItemQuery(statuses=("failed",)))
    matrix = service.runs.item_page(run_id, "fetch", ItemQuery(limit=1, after=0))
    assert ([item.index for item in items.items], items.next, items.total) == ([0, 1, 2], 2, 4)
    assert ([item.item for item in rest.items], rest.next, rest.counts) == ([4], None, {"completed": 3, "failed": 1})
    assert ([item.index for item in broken.items], broken.total) == ([2], 1)
    assert ([item.name for item in matrix.items], matrix.next) == (["fetch_2"], 1)

    # Another process moves the run on: the state that is kept here follows its log.
    before = service.cache.get(run_id)
    with Service(live.home) as other:
        other.changes.approve(run_id, "gate", is_approved=True, reason="fine")
    live.resume(run_id)
    changes = service.runs.changes_since(run_id, first.seq)

    assert service.cache.get(run_id) is before
    assert is_same(before.state, service.reader.state(run_id))
    assert (changes.kind, changes.status, changes.seq) == ("steps", "failed", service.runs.record(run_id).seq)
    assert {step.name: step.status for step in changes.steps} == {
        "gate": "completed",
        "last": "failed",
        "end": "completed",
    }
    assert service.runs.changes_since(run_id, changes.seq).kind == "none"
    assert (service.runs.changes_since(run_id, 1).kind, service.runs.changes_since(run_id, 10**6).kind) == (
        "all",
        "all",
    )

    # Another round: what it puts back has changed as well.
    with Service(live.home) as other:
        other.changes.retry(run_id)
    again = service.runs.changes_since(run_id, changes.seq)
    assert (again.kind, again.round, "last" in {step.name for step in again.steps}) == ("steps", 2, True)
    assert is_same(service.cache.get(run_id).state, service.reader.state(run_id))


def test_small_runs_that_were_looked_at_long_ago_are_given_up(live_file: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_cache, "RUNS_MAX", 2)
    service = live_file.service
    prepared = prepare(load_text("name: small\nsteps: [{step: work, shell: 'true'}]"), {}, live_file.folder)
    first, second, third = (service.changes.create(prepared)[0] for _ in range(3))

    for run_id in (first, second, first, third):
        service.runs.step_page(run_id, StepQuery())

    assert [service.cache.has(run_id) for run_id in (first, second, third)] == [True, False, True]


def test_what_cannot_be_asked_for_is_refused(live_file: Live) -> None:
    service = live_file.service
    run_id = service.changes.create(prepare(load_text(FLOW), {}, live_file.folder))[0]

    page = service.runs.step_page(run_id, StepQuery())
    assert ({step.status for step in page.steps}, page.end, page.counts) == ({"waiting"}, None, {"waiting": 6})
    with pytest.raises(UnknownStep):
        service.runs.step_page(run_id, StepQuery(after="fetch_9"))
    with pytest.raises(InputInvalid):
        service.runs.step_page(run_id, StepQuery(limit=0))
    with pytest.raises(UnknownRun):
        service.runs.changes_since(99, 0)
    assert [record.run_id for record in service.runs.records([run_id, 99])] == [run_id]


def test_what_waits_for_a_person_is_read_in_pages(live_file: Live) -> None:
    service = live_file.service
    asking = "name: asking\nsteps: [{step: a, approve: {message: go?}}, {step: b, approve: {message: go?}}]"
    first, second = (live_file.run(asking).run_id for _ in range(2))
    service.changes.pause(second)

    pages, after = [], None
    while True:
        page = service.decisions.pending_page(after=after, limit=2)
        pages.append([(entry.run_id, entry.step) for entry in page.entries])
        after = page.next
        if after is None:
            break

    assert pages == [[(first, "a"), (first, "b")], [(second, None), (second, "a")], [(second, "b")]]
    assert page.total == 5
    assert [(one.run_id, one.step) for one in service.decisions.list_pending()] == [
        one for some in pages for one in some
    ]
