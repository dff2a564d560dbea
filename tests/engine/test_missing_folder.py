"""A run works in a folder that only one of two hosts has, or none."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.nightly import POSTGRES

from mulligan.core.model import events as e
from mulligan.language import load_text
from mulligan.service.driving.driver import Driver, machine
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.home import Home
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.stored.run_reader import RunReader

FLOW = "name: many\nsteps:\n" + "".join(f"  - {{step: s{n}, {how}}}\n" for n, how in enumerate(["shell: 'true'"] * 6))
PATIENCE_SECONDS = 30.0


def facts_of(reader: RunReader, drivers: list[Driver], run_id: int, *, until: str) -> list[e.Fact]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while reader.store.run(run_id).status != until:
        assert time.monotonic() < deadline, [entry.fact for entry in reader.events(run_id)]
        for driver in drivers:
            driver.engine.tick(0.01)
    return [entry.fact for entry in reader.events(run_id)]


@pytest.mark.postgres
@pytest.mark.parametrize("store_url", ["file", POSTGRES])
def test_a_worker_that_is_alone_fails_the_tasks_of_a_folder_that_is_gone(
    tmp_path: Path, store_url: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("schema_url") if store_url == "postgres" else ""
    with ExitStack() as held:
        reader = RunReader(Home(tmp_path / "home", url))
        held.callback(reader.close)
        driver = held.enter_context(open_driver(reader, machine(1), serves=True))
        driver.expire_dead_workers()
        [run_id] = Changes(reader).create(prepare(load_text(FLOW), {}, tmp_path / "gone"), driver)

        facts = facts_of(reader, [driver], run_id, until="failed")

    failed = [fact.failure for fact in facts if isinstance(fact, e.AttemptFailed)]
    assert {one.code for one in failed} == {"INPUT_INVALID"}
    assert str(tmp_path / "gone") in failed[0].message
