"""doit: COUNT shell tasks `true`, then one that needs them all.

Run as `doit -f doit_fan.py -n PARALLEL count=COUNT`. It keeps what was done when all is over, not step by step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doit import get_var

DOIT_CONFIG = {"backend": "sqlite3", "dep_file": "doit.db", "verbosity": 0, "reporter": "zero"}


def task_fan() -> Iterator[dict[str, Any]]:
    for i in range(int(get_var("count", "1"))):
        yield {"name": str(i), "actions": ["true"]}


def task_join() -> dict[str, Any]:
    return {"actions": ["true"], "task_dep": ["fan"]}
