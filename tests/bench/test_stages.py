"""The table of stages: it names functions that exist, and counts each moment once, for the innermost stage."""

from __future__ import annotations

import pytest
from bench.staging.clock import StageClock, find
from bench.staging.figures import best, count_calls, per_step
from bench.staging.stages import AROUND, DRIVING, FIRST_TASK, PER_STEP

NAMES = sorted({name for stage in (*AROUND, *PER_STEP) for name in stage.functions} | {FIRST_TASK, DRIVING})


class Ticks:
    """A clock that advances by one second with each look: as much by the wall as in the process."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> tuple[float, float]:
        self.now += 1.0
        return self.now, self.now / 2


@pytest.mark.parametrize("name", NAMES)
def test_every_function_of_a_stage_exists(name):
    _, _, found = find(name)

    assert callable(found) or isinstance(found, staticmethod)


def test_a_moment_counts_for_the_innermost_stage():
    clock = StageClock(Ticks())
    inner = clock.wrap(lambda: "done", "inner", then="after")
    outer = clock.wrap(inner, "outer")

    assert outer() == "done"

    assert dict(clock.wall) == {"the rest": 1.0, "outer": 1.0, "inner": 1.0, "after": 1.0}
    assert dict(clock.cpu) == {"the rest": 0.5, "outer": 0.5, "inner": 0.5, "after": 0.5}
    assert clock.calls == {"outer": 1, "inner": 1}


def test_what_happens_before_the_first_step_counts_together_except_what_is_named():
    clock = StageClock(Ticks(), kept=frozenset({"reading"}))
    clock.begin_phase("creating")

    clock.wrap(lambda: None, "reading")()
    clock.wrap(lambda: None, "turn")()
    clock.begin_phase("")

    assert dict(clock.wall) == {"the rest": 1.0, "creating": 4.0, "reading": 1.0}


def test_an_error_leaves_its_stage():
    clock = StageClock(Ticks())
    with pytest.raises(ZeroDivisionError):
        clock.wrap(lambda: 1 / 0, "turn")()

    clock.enter("next")

    assert clock.wall == {"the rest": 2.0, "turn": 1.0}


def test_system_calls_are_counted_by_name_and_the_bytes_of_the_wal_are_added_up():
    lines = [
        'pwrite64(4</srv/mulligan.db-wal>, ""..., 24, 7069952) = 24',
        'pwrite64(4</srv/mulligan.db-wal>, ""..., 4096, 7069976) = 4096',
        'pwrite64(3</srv/mulligan.db>, ""..., 4096, 0) = 4096',
        "fdatasync(4</srv/mulligan.db-wal>) = 0",
        "+++ exited with 0 +++",
    ]

    found = count_calls(lines)

    assert found == {"system calls": 4, "- pwrite64": 3, "- fdatasync": 1, "bytes of WAL": 4120}


def test_what_one_more_step_adds():
    assert per_step({"turn": 12.0, "new": 3.0}, {"turn": 2.0}, 11) == {"turn": 1.0, "new": 0.3}
    assert best([{"turn": 3.0, "wait": 1.0}, {"turn": 2.0, "wait": 4.0}]) == {"turn": 2.0, "wait": 1.0}
