"""Who starts a run and gets no answer may ask again under the same key: the run is there, once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.runner import Live

from mulligan.core.model.events import Entry
from mulligan.errors import KeyMismatch, KeyUsed, StoreUnavailable
from mulligan.language import load_text
from mulligan.ports import NewRun, Store, Turn
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare

FLOW = "name: flow\nsteps: [{step: work, shell: 'true'}]"
OTHER = "name: other\nsteps: [{step: work, shell: 'false'}]"


class LosesTheAnswer:
    """A store that makes the run, and whose answer never comes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, runs: Sequence[NewRun], holder: str = "") -> list[Turn]:
        self._store.create(runs, holder)
        raise StoreUnavailable("the answer was lost")


class TakenBetweenReads:
    """A store in which a worker takes the run after its log was read for the first time, and before its inbox is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_read = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        is_read, self._is_read = self._is_read, True
        return self._store.log(run_id, after, limit) if is_read else []


def prepared(text: str, folder: Path) -> Prepared:
    return prepare(load_text(text), {}, folder)


@pytest.mark.postgres
def test_a_start_whose_answer_was_lost_gives_the_same_run_when_it_is_asked_for_again(
    live: Live, tmp_path: Path
) -> None:
    service = live.service
    store = service.reader.store
    service.reader.store = LosesTheAnswer(store)  # type: ignore[misc,assignment]
    with pytest.raises(StoreUnavailable):
        service.changes.start_once(prepared(FLOW, tmp_path), "order-7")[0]
    service.reader.store = store  # type: ignore[misc]

    run_id = service.changes.start_once(prepared(FLOW, tmp_path), "order-7")[0]

    assert [run.run_id for run in service.reader.runs()] == [run_id]


def test_a_key_that_was_used_for_another_workflow_is_refused(live_file: Live, tmp_path: Path) -> None:
    run_id = live_file.service.changes.start_once(prepared(FLOW, tmp_path), "order-7")[0]

    with pytest.raises(KeyUsed) as refused:
        live_file.service.changes.start_once(prepared(OTHER, tmp_path), "order-7")[0]

    assert refused.value.render() == (
        f"error[run.key_mismatch]: the key 'order-7' was used for run {run_id} of the workflow 'flow', not 'other'\n"
        "  use another key for another run, or ask for the same again"
    )


def test_a_key_that_was_used_with_other_inputs_is_refused_with_their_names_and_no_value(
    live: Live, tmp_path: Path
) -> None:
    text = f"{FLOW}\ninputs: {{day: {{default: monday}}, token: {{default: x}}, same: {{default: s}}}}"
    first = prepare(load_text(text), {"token": "4711"}, tmp_path)
    run_id = live.service.changes.start_once(first, "order-7")[0]

    with pytest.raises(KeyMismatch) as refused:
        live.service.changes.start_once(
            prepare(load_text(text), {"token": "4712", "day": "friday"}, tmp_path), "order-7"
        )[0]

    assert refused.value.message == f"the key 'order-7' was used for run {run_id} with other inputs: 'day', 'token'"
    assert (refused.value.data["inputs"], refused.value.http_status) == (["day", "token"], 422)
    assert live.service.changes.start_once(first, "order-7")[0] == run_id


@pytest.mark.postgres
def test_other_inputs_are_refused_also_in_the_moment_in_which_a_worker_takes_the_run(
    live_file: Live, tmp_path: Path
) -> None:
    workflow = load_text(f"{FLOW}\ninputs: {{day: {{default: monday}}}}")
    service = live_file.service
    service.changes.pause(service.changes.start_once(prepare(workflow, {}, tmp_path), "order-7")[0])
    service.reader.store = TakenBetweenReads(service.reader.store)  # type: ignore[misc,assignment]

    with pytest.raises(KeyMismatch):
        service.changes.start_once(prepare(workflow, {"day": "friday"}, tmp_path), "order-7")[0]


def test_each_call_may_be_in_the_name_of_another_user(live: Live, tmp_path: Path) -> None:
    ann, eve = (live.service.as_user(name) for name in ("ann", "eve"))

    run_id = ann.changes.start_once(prepared(FLOW, tmp_path), "order-7")[0]
    eve.changes.pause(run_id, reason="for lunch")

    first, *_, last = live.service.reader.events(run_id)
    assert (first.fact.by, last.fact.by, live.service.runs.record(run_id).started_by) == ("ann", "eve", "ann")
    assert live.service.by not in ("ann", "eve")


def test_another_key_is_another_run(live_file: Live, tmp_path: Path) -> None:
    first = live_file.service.changes.start_once(prepared(FLOW, tmp_path), "order-7")[0]

    second = live_file.service.changes.start_once(prepared(FLOW, tmp_path), "order-8")[0]

    assert first != second
