"""Runs that pass large values around: their driver must still handle everything else in time.

The heartbeat is the loop's own: it says each time that it has come round. Both bounds are generous, for a machine that
has much else to do; a loop that waits for a reader, or works through the values itself, is far beyond them.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mulligan.core.model.events import Entry
from mulligan.core.state.state import State
from mulligan.formats import load
from mulligan.service.driving.driver import Capacity
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

# Between two turns of the loop: on the clock, and of its own computing.
SECONDS_MAX = 5.0
CPU_SECONDS_MAX = 0.3
# Just below the most that an output may have.
BYTES = 60_000_000
SECRET = "PROOF_TOKEN"

_ROWS = f'["{"0123456789abcdef" * 4}"] * {BYTES // 2 // 67}'
_GIVE = f"def main():\n    return {_ROWS}\n"
_COUNT = "def main(**values):\n    return sum(map(len, values.values()))\n"


class LoopHeld(Exception):
    """The loop did not turn for too long."""


class Heartbeat:
    """Notes the longest time between two turns of the loop that it watches."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self._at, self._cpu_at = time.monotonic(), time.thread_time()

    def tick(self) -> None:
        at, cpu_at = time.monotonic(), time.thread_time()
        self.seconds = max(self.seconds, at - self._at)
        self.cpu_seconds = max(self.cpu_seconds, cpu_at - self._cpu_at)
        self._at, self._cpu_at = at, cpu_at

    def committed(self, state: State, entries: Sequence[Entry], is_ordinary: bool = False) -> None:
        pass

    def trouble(self, message: str) -> None:
        pass

    def judge(self) -> None:
        if self.seconds > SECONDS_MAX or self.cpu_seconds > CPU_SECONDS_MAX:
            raise LoopHeld(f"the loop did not turn for {self.seconds:.1f}s, {self.cpu_seconds:.2f}s of that computing")


def driven(*steps: dict[str, Any], **workflow: Any) -> Callable[[], object]:
    """Run the steps, and see that the loop which drives them turns all the while."""

    def light() -> object:
        os.environ[SECRET] = "never to be told to anybody"
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/var/tmp") as folder:
            path = Path(folder) / "large.yaml"
            path.write_text(json.dumps({"name": "large", "steps": steps, **workflow}))
            return _drive(path)

    return light


def _drive(path: Path) -> str:
    service, heartbeat = Service(Home(path.parent / "home")), Heartbeat()
    try:
        with service.driving.driver(Capacity(cpus=2.0, memory=8 << 30), heartbeat) as driver:
            (run_id,) = service.changes.create(prepare(load(path), {}, path.parent), driver)
            driver.drive(run_id)
            status = service.reader.store.run(run_id).status
    finally:
        service.close()
    heartbeat.judge()
    assert status == "completed", f"the run has {status}"
    return status


_MADE = [{"step": "one", "python": _GIVE}, {"step": "two", "python": _GIVE}]
_NEEDS = {"needs": ["one", "two"]}
_BOTH = {"a": "${steps.one.output}", "b": "${steps.two.output}", "c": "${steps.one.output}", "d": "${steps.two.output}"}
_PRINTED = {"step": "one", "shell": f"head -c {BYTES} /dev/zero | tr '\\0' x"}
_LAST = {"step": "last", "shell": "true", "needs": ["one"]}

# By name: what is done.
WAYS: dict[str, Callable[[], object]] = {
    "arguments-of-100-MB": driven(*_MADE, {"step": "use", "python": _COUNT, "args": _BOTH, **_NEEDS}),
    "an-input-of-60-MB": driven(_PRINTED, {**_LAST, "shell": "wc -c", "stdin": "${steps.one.output}"}),
    "lines-of-60-MB": driven(
        {"step": "one", "shell": f"yes 0123456789abcdef | head -c {BYTES}", "capture": "lines"}, _LAST
    ),
    "60-MB-to-look-through-for-secrets": driven(_PRINTED, _LAST, secrets={"token": {"env": SECRET}}),
}
