"""Mulligan: COUNT runs of three no-op steps, PARALLEL steps at a time, in the home and store of the environment."""

from __future__ import annotations

import sys
from pathlib import Path

from mulligan.language import load_text
from mulligan.service.driving.driver import machine
from mulligan.service.home import find_home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

WORKFLOW = """
name: three
order: sequential
steps:
  - {step: a, python: "def main():\\n    return None\\n"}
  - {step: b, python: "def main():\\n    return None\\n"}
  - {step: c, python: "def main():\\n    return None\\n"}
"""

count, parallel = int(sys.argv[1]), int(sys.argv[2])
service = Service(find_home())
prepared = prepare(load_text(WORKFLOW), {}, Path.cwd())
with service.driving.driver(machine(parallel)) as driver:
    run_ids = service.changes.create(prepared, driver, times=count)
    driver.serve(until=lambda: not driver.engine.drivers)
statuses = {service.runs.record(run_id).status for run_id in run_ids}
assert statuses == {"completed"}, statuses
