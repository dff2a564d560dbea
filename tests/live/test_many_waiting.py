"""A worker beside more runs that wait for people than it takes up at a time."""

from __future__ import annotations

import time
from pathlib import Path

from mulligan.engine.driven_runs import IDLE_AT_ONCE_MAX
from mulligan.language import load_text
from mulligan.service.driving.driver import Capacity
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

WITH_WORK = "name: work\nsteps: [{step: work, shell: 'true'}]"
WAITING = "name: ask\nsteps: [{step: ask, approve: {message: May it?}}]"


def test_a_thousand_runs_that_wait_do_not_hide_an_older_one_that_has_work(tmp_path: Path) -> None:
    service = Service(Home(tmp_path / "home"))
    (old,) = _left_by_a_dead_engine(service, WITH_WORK, 1)
    _left_by_a_dead_engine(service, WAITING, IDLE_AT_ONCE_MAX)
    deadline = time.monotonic() + 60

    with service.driving.driver(Capacity(cpus=1.0, memory=1 << 30)) as driver:
        driver.serve(until=lambda: service.runs.record(old).status == "completed" or time.monotonic() > deadline)

    assert service.runs.record(old).status == "completed"


def _left_by_a_dead_engine(service: Service, text: str, times: int) -> list[int]:
    """Runs that were begun by somebody who runs nothing: their tasks are queued, and nobody tells them anything."""
    with open_driver(service.reader) as driver:
        run_ids = service.changes.create(prepare(load_text(text), {}, Path.cwd()), driver, times=times)
        driver.serve(until=lambda: driver.engine.is_settled)
    return run_ids
