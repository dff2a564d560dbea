"""A store that has written what it was told, and whose answer never came: nothing is done twice, and every run ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.nightly import examples

from mulligan.errors import StoreUnavailable
from mulligan.language import load
from mulligan.ports import Commit, CommitResult, Store
from mulligan.service.driving.driver import Capacity
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service
from proof.crashes.outcome_checks import steady
from proof.crashes.workflow import DONE_ONCE, done, written
from proof.stage import Stage

COMMITS_MAX = 100
# At night each fourth commit, half of them on each store; `make crashes` loses every answer of a server.
EVERY = examples(16, 8)


class LosesAnAnswer:
    """A store: the answer to its n-th commit is lost."""

    def __init__(self, store: Store, nth: int) -> None:
        self._store = store
        self.left = nth

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        written = self._store.commit(commits)
        self.left -= 1
        if self.left == 0:
            raise StoreUnavailable("the answer was lost")
        return written


def ended(stage: Stage, nth: int) -> tuple[dict[str, Any], bool]:
    """How a run ends, and whether an answer was lost on the way."""
    service = Service(stage.home)
    store = LosesAnAnswer(service.reader.store, nth)
    service.reader.store = store  # type: ignore[misc]
    with service.driving.driver(Capacity(2.0, 1 << 30)) as driver:
        (run_id,) = service.changes.create(prepare(load(stage.folder / written(stage)), {}, stage.folder), driver)
        assert driver.drive(run_id) == "ended"
    stage.expect_promises(service, run_id)
    shown = service.runs.show(run_id)
    service.close()
    return steady(shown), store.left <= 0


def test_an_answer_that_is_lost_after_any_commit_changes_nothing(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = None
    for nth in (0, *range(EVERY // 2 if store_url else EVERY, COMMITS_MAX, EVERY)):
        folder = tmp_path / str(nth)
        folder.mkdir()
        stage = Stage(folder, store_url)
        written(stage)
        for name, value in stage.environment.items():
            monkeypatch.setenv(name, value)

        found, is_lost = ended(stage, nth)

        expected = expected or found
        assert (found, done(stage)) == (expected, DONE_ONCE), f"the answer to commit {nth} was lost"
        if nth and not is_lost:
            break
    assert 10 < nth < COMMITS_MAX - 1
