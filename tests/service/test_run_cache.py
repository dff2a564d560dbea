"""The states that a server keeps: runs of one version share its definition, for as long as one of them is kept."""

from __future__ import annotations

import gc
from pathlib import Path

from mulligan.core.model.graph import Graph
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.stored.run_cache import RunCache
from mulligan.service.service import Service

FLOW = "name: flow\nsteps: [{step: one, approve: {message: go?}}]\n"


def test_runs_of_one_version_share_one_definition_which_goes_with_the_last_of_them(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    with Service(Home(tmp_path / "home")) as service:
        prepared = prepare(service.workflows.load_workflow(file), {}, tmp_path)
        run_ids = service.changes.create(prepared, times=5)
        # What was there before is not searched for garbage again: with all tests loaded that takes long.
        gc.collect()
        gc.freeze()
        before = graphs()
        cache = RunCache(service.reader)

        kept = [cache.get(run_id).state for run_id in run_ids]

        assert {id(state.graph) for state in kept} == {id(kept[0].graph)}
        assert {id(state.workflow) for state in kept} == {id(kept[0].workflow)}
        assert graphs() == before + 1
        del kept, cache
        assert graphs() == before


def graphs() -> int:
    gc.collect()
    # By their type: `isinstance` asks lazy objects for their class, and they load what they stand for.
    return sum(type(one) is Graph for one in gc.get_objects())
