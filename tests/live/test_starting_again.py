"""Who starts a run and gets no answer may ask again under the same key: the run is there, once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import KeyUsed, StoreUnavailable
from mulligan.language import load_text
from mulligan.ports import NewRun, Store, Turn
from mulligan.service.run_control import Prepared, prepare

from .runner import Live

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


def prepared(text: str, folder: Path) -> Prepared:
    return prepare(load_text(text), {}, folder)


def test_a_start_whose_answer_was_lost_gives_the_same_run_when_it_is_asked_for_again(
    live: Live, tmp_path: Path
) -> None:
    service = live.service
    store = service.reader.store
    service.reader.store = LosesTheAnswer(store)  # type: ignore[misc,assignment]
    with pytest.raises(StoreUnavailable):
        service.start_once(prepared(FLOW, tmp_path), "order-7")
    service.reader.store = store  # type: ignore[misc]

    run_id = service.start_once(prepared(FLOW, tmp_path), "order-7")

    assert [run.run_id for run in service.reader.runs()] == [run_id]


def test_a_key_that_was_used_for_another_workflow_is_refused(live_file: Live, tmp_path: Path) -> None:
    run_id = live_file.service.start_once(prepared(FLOW, tmp_path), "order-7")

    with pytest.raises(KeyUsed) as refused:
        live_file.service.start_once(prepared(OTHER, tmp_path), "order-7")

    assert refused.value.render() == (
        f"error[run.key_used]: the key 'order-7' was used for run {run_id} of another workflow"
    )


def test_another_key_is_another_run(live_file: Live, tmp_path: Path) -> None:
    first = live_file.service.start_once(prepared(FLOW, tmp_path), "order-7")

    second = live_file.service.start_once(prepared(FLOW, tmp_path), "order-8")

    assert first != second
