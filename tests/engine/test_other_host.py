"""A retry with `host: other`, with two workers of different hosts on one PostgreSQL."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from mulligan.core.model import events as e
from mulligan.language import load_text
from mulligan.service.driving.driver import Driver, machine
from mulligan.service.driving.local_worker import local_worker
from mulligan.service.home import Home
from mulligan.service.runs.changes.run_control import RunControl, prepare
from mulligan.service.runs.stored.run_reader import RunReader

# It fails on the first host that it comes to, whichever that is.
PICKY = """
name: picky
steps: [{step: a, shell: 'mkdir failed || exit 0; exit 1', retry: {max_retries: 1, host: other}}]
"""
PATIENCE_SECONDS = 30.0


def test_the_retry_runs_on_the_other_host(tmp_path: Path, schema_url: str) -> None:
    with ExitStack() as held:
        drivers: list[Driver] = []
        for host in ("n1", "n2"):
            reader = RunReader(Home(tmp_path / host, schema_url))
            held.callback(reader.close)
            drivers.append(held.enter_context(local_worker(reader.home, reader.store, machine(1), host=host)))
        for driver in drivers:
            # Each knows of the other: none is alone.
            driver.expire_dead_workers()
        control = RunControl(reader)
        [run_id] = control.start(prepare(load_text(PICKY), {}, tmp_path), drivers[0])

        until = time.monotonic() + PATIENCE_SECONDS
        while reader.store.run(run_id).status != "completed":
            assert time.monotonic() < until, [entry.fact for entry in reader.events(run_id)]
            for driver in drivers:
                driver.engine.tick(0.01)
        hosts = [entry.fact.host for entry in reader.events(run_id) if isinstance(entry.fact, e.AttemptStarted)]

    assert sorted(hosts) == ["n1", "n2"]
