"""Further rounds of child runs, in every store: asked for once, ended for the right attempt, whatever crashes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.effects.snapshot import restore
from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import ChildRound
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from mulligan.ports import FAULT_POINTS
from mulligan.testing.faults import Crash, faults

from .conftest import World

INNER = """
name: inner
steps:
  - {step: load, shell: load}
  - {step: check, needs: [load], shell: check}
"""
MIDDLE = """
name: middle
steps:
  - {step: prepare, shell: prepare}
  - {step: inner, needs: [prepare], workflow: inner.yaml%s}
"""
OUTER = """
name: outer
steps:
  - {step: fetch, shell: fetch}
  - {step: middle, needs: [fetch], workflow: %s/middle.yaml}
  - {step: report, needs: [middle], shell: report}
"""


class Bench:
    """A tree of three runs whose last step fails until it is mended; with a rule, it is mended after one failure."""

    def __init__(self, world: World, folder: Path, rule: str = "") -> None:
        self.world = world
        (folder / "inner.yaml").write_text(INNER)
        (folder / "middle.yaml").write_text(MIDDLE % rule)
        self.text = OUTER % folder
        self.is_mended = False

    def ends(self, task: Task) -> Outcome:
        return Outcome(exit_code=int(task.step == "check" and not self.is_mended and task.attempt == 1))

    def engine(self) -> Engine:
        return self.world.engine(ends=self.ends)

    def failed(self) -> int:
        self.is_mended = False
        engine = self.engine()
        run_id = self.world.start(self.text, engine)
        self.world.settle(engine)
        assert [run.status for run in self.tree(run_id)] == ["failed"] * 3
        return run_id

    def retry(self, run_id: int, **fields: Any) -> None:
        self.world.store.put(run_id, r.RetryRequested(self.world.clock.now(), "someone", **fields))

    def finish(self, run_id: int) -> None:
        """Drive the tree to its end, with a new engine after each crash."""
        engine: Engine | None = None
        for _ in range(200):
            if engine is None:
                engine = self.engine()
                engine.take_up([run.run_id for run in self.tree(run_id) if run.status == "running"] or [run_id])
            try:
                self.world.settle(engine)
            except Crash:
                self.world.expire(engine)
                engine = None
                continue
            if self.world.status(run_id) != "running" and not self.world.store.inbox([run_id]):
                return
        raise AssertionError(f"run {run_id} goes on for ever")

    def tree(self, run_id: int) -> list[Any]:
        found = [self.world.store.run(run_id)]
        for run in found:
            found += self.world.store.children(run.run_id)
        return found

    def outcome(self, run_id: int) -> dict[str, Any]:
        """What a crash may not change: by depth, so that the numbers of runs do not matter."""
        shown = []
        for record in self.tree(run_id):
            state = self.world.state(record.run_id)
            assert restore(self.world.workflow(record.run_id), self.world.store.load(record.run_id).rows) == state
            facts = Counter(self.world.facts(record.run_id))
            steps = {place.key: (place.status, place.visit) for place in state.steps()}
            shown.append((record.workflow, record.status, record.round, facts["RunReopened"], steps))
        return {
            "runs": shown,
            "refused": [self.world.facts(run.run_id).count("ReportRefused") for run in self.tree(run_id)],
        }


KEPT = {
    "runs": [
        (
            "outer",
            "completed",
            2,
            1,
            {"fetch": ("completed", 1), "middle": ("completed", 2), "report": ("completed", 1)},
        ),
        ("middle", "completed", 2, 1, {"prepare": ("completed", 1), "inner": ("completed", 2)}),
        ("inner", "completed", 2, 1, {"load": ("completed", 1), "check": ("completed", 2)}),
    ],
    "refused": [0, 0, 0],
}


def below(bench: Bench, run_id: int, **fields: Any) -> dict[str, Any]:
    """What a retry of the innermost run sends to the outermost."""
    _, middle, inner = bench.tree(run_id)
    return {"child": ChildRound("middle", middle.run_id, 2, child=ChildRound("inner", inner.run_id, 2, **fields))}


def test_a_retry_keeps_what_every_run_of_the_tree_has_completed(world: World, tmp_path: Path) -> None:
    bench = Bench(world, tmp_path)
    run_id = bench.failed()

    bench.retry(run_id)
    bench.finish(run_id)

    assert bench.outcome(run_id) == KEPT


def test_a_retry_of_the_innermost_run_goes_through_all_above_it(world: World, tmp_path: Path) -> None:
    bench = Bench(world, tmp_path)
    run_id = bench.failed()

    bench.retry(run_id, **below(bench, run_id, from_step="load"))
    bench.finish(run_id)

    again = ("inner", "completed", 2, 1, {"load": ("completed", 2), "check": ("completed", 2)})
    assert bench.outcome(run_id)["runs"] == [*KEPT["runs"][:2], again]


def test_a_rule_continues_the_child_run_too(world: World, tmp_path: Path) -> None:
    bench = Bench(world, tmp_path, ", retry: 1")
    engine = bench.engine()
    run_id = world.start(bench.text, engine)

    world.settle(engine)

    inner = ("inner", "completed", 2, 1, {"load": ("completed", 1), "check": ("completed", 2)})
    middle = ("middle", "completed", 1, 0, {"prepare": ("completed", 1), "inner": ("completed", 1)})
    assert bench.outcome(run_id)["runs"][1:] == [middle, inner]


def test_from_start_runs_a_child_anew(world: World, tmp_path: Path) -> None:
    bench = Bench(world, tmp_path)
    run_id = bench.failed()

    bench.retry(run_id, from_start=True)
    bench.is_mended = True
    bench.finish(run_id)

    statuses = [(run.workflow, run.status, run.round) for run in bench.tree(run_id)]
    assert statuses[:3] == [("outer", "completed", 2), ("middle", "failed", 1), ("middle", "completed", 1)]
    assert sorted(statuses[3:]) == [("inner", "completed", 1), ("inner", "failed", 1)]


def test_a_cancel_that_comes_before_the_child_has_opened_its_round_reaches_it(world: World, tmp_path: Path) -> None:
    bench = Bench(world, tmp_path)
    run_id = bench.failed()
    bench.retry(run_id)
    world.store.put(run_id, r.CancelRequested(world.clock.now(), "someone"))

    bench.finish(run_id)

    assert (world.status(run_id), world.store.run(run_id).round) == ("cancelled", 2)
    assert all(run.status in ("cancelled", "failed") for run in bench.tree(run_id))
    assert not any(world.store.inbox([run.run_id]) for run in bench.tree(run_id))


def test_a_child_that_refuses_its_round_fails_the_attempt_that_waits_for_it(world: World, tmp_path: Path) -> None:
    bench = Bench(world, tmp_path)
    run_id = bench.failed()

    bench.retry(run_id, child=replace(below(bench, run_id)["child"], from_step="no such step", child=None))
    bench.finish(run_id)

    assert (world.status(run_id), world.store.run(bench.tree(run_id)[1].run_id).round) == ("failed", 1)
    found = world.state(run_id).places["middle"].failure
    assert found is not None and found.code == "CHILD_FAILED" and "cannot be continued" in found.message


def test_a_report_about_an_earlier_attempt_changes_nothing(world: World, tmp_path: Path) -> None:
    bench = Bench(world, tmp_path)
    run_id = bench.failed()
    bench.retry(run_id)
    ended = r.ChildEnded(world.clock.now(), "middle", 1, bench.tree(run_id)[1].run_id, "completed")
    world.store.put(run_id, ended)

    bench.finish(run_id)

    assert bench.outcome(run_id)["runs"] == KEPT["runs"]
    assert [entry.fact.reason for entry in world.store.log(run_id) if isinstance(entry.fact, e.ReportRefused)] == [
        "stale_attempt"
    ]


@pytest.mark.parametrize("is_below", [False, True])
@pytest.mark.parametrize("point", sorted(FAULT_POINTS))
def test_a_crash_at_any_pass_of_a_fault_point_changes_no_outcome(
    world: World, tmp_path: Path, point: str, is_below: bool
) -> None:
    bench = Bench(world, tmp_path)

    def retried() -> int:
        run_id = bench.failed()
        bench.retry(run_id, **(below(bench, run_id) if is_below else {}))
        return run_id

    with faults() as points:
        run_id = retried()
        before = points.passes[point]
        bench.finish(run_id)
        passes = points.passes[point]

    assert (passes > before, bench.outcome(run_id)) == (True, KEPT)
    for nth in world.crashes(passes - before):
        run_id = retried()
        with faults() as points:
            points.arm(point, nth)
            bench.finish(run_id)

        # A task whose worker has died runs again.
        outcome = {**bench.outcome(run_id), "refused": KEPT["refused"]}
        assert outcome == KEPT, f"died at pass {nth} of '{point}'"
