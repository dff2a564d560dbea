"""The workflows that an engine keeps: runs of one version share one, and old versions are forgotten."""

from __future__ import annotations

import gc

import pytest

from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Step, Workflow, encode, version
from mulligan.engine.workflow_cache import VERSIONS_KEPT_MAX, WorkflowCache
from mulligan.errors import CodecError


def _definition(number: int) -> tuple[str, bytes]:
    data = encode(Workflow(f"flow {number}", (), Step(name="end")))
    return version(data), data


def test_a_worker_keeps_the_newest_versions_and_reads_an_older_one_again() -> None:
    cache = WorkflowCache()
    first = cache.get(*_definition(0))
    before = sum(isinstance(found, Graph) for found in gc.get_objects())

    for number in range(2 * VERSIONS_KEPT_MAX):
        assert cache.get(*_definition(number)) is cache.get(*_definition(number))

    assert sum(isinstance(found, Graph) for found in gc.get_objects()) - before <= VERSIONS_KEPT_MAX
    assert cache.get(*_definition(0)) is not first


def test_a_definition_under_the_version_of_another_is_not_run_whichever_is_known_first() -> None:
    cache, (honest, data), (_, planted) = WorkflowCache(), _definition(1), _definition(2)

    for _ in range(2):
        with pytest.raises(CodecError, match=f"not of version {honest}"):
            cache.get(honest, planted)
        assert cache.get(honest, data)[0].name == "flow 1"
