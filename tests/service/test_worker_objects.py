"""A worker that runs for months: what it holds does not depend on how many runs it has driven."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

from mulligan.cli.operating.worker import Log
from mulligan.service.driving.driver import Capacity, Driver
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare
from mulligan.service.service import Service

FLOW = """
name: flow
steps:
  - {step: one, shell: 'true'}
  - {step: two, needs: [one], shell: 'exit 3', on_failure: [{shell: 'true'}]}
"""
RUNS = 6
# What has a bound that so few runs do not reach, and a test of it.
BOUNDED = {"Folders._made"}


def objects_of_ours() -> Counter[str]:
    """How many objects of each class of ours there are, and how many entries their containers have."""
    gc.collect()
    found: Counter[str] = Counter()
    for one in gc.get_objects():
        if str(type(one).__module__).startswith("mulligan."):
            name = type(one).__qualname__
            found[name] += 1
            for field, value in getattr(one, "__dict__", {}).items():
                if isinstance(value, dict | set | list):
                    found[f"{name}.{field}"] += len(value)
    return found


def drive(service: Service, driver: Driver, prepared: Prepared) -> Counter[str]:
    """What there is of ours after some more runs."""
    for run_id in service.changes.create(prepared, driver, times=RUNS):
        driver.drive(run_id, 0.0)
    return objects_of_ours()


def test_a_worker_holds_as_much_after_more_runs(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    with Service(Home(tmp_path / "home")) as service:
        prepared = prepare(service.workflows.load_workflow(file), {}, tmp_path)
        with service.driving.driver(Capacity(2.0, 1 << 30), Log()) as driver:
            before = drive(service, driver, prepared)
            after = drive(service, driver, prepared)

    grown = {name: (before[name], count) for name, count in after.items() if count - before[name] >= RUNS / 2}
    assert grown.keys() == BOUNDED
