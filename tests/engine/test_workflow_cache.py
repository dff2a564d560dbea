"""The workflows that an engine keeps: runs of one version share one, and old versions are forgotten."""

from __future__ import annotations

import gc

from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Step, Workflow, encode
from mulligan.engine.workflow_cache import VERSIONS_KEPT_MAX, WorkflowCache


def test_a_worker_keeps_the_newest_versions_and_reads_an_older_one_again() -> None:
    cache, data = WorkflowCache(), encode(Workflow("flow", (), Step(name="end")))
    first = cache.get("v0", data)
    before = sum(isinstance(found, Graph) for found in gc.get_objects())

    for number in range(2 * VERSIONS_KEPT_MAX):
        assert cache.get(f"v{number}", data) is cache.get(f"v{number}", data)

    assert sum(isinstance(found, Graph) for found in gc.get_objects()) - before <= VERSIONS_KEPT_MAX
    assert cache.get("v0", data) is not first
