"""Everything at once: whatever happens to tasks and to the supervisor, each one ends once and all room comes back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.support.work import Work, kill

from mulligan.ports import Lease

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

SHELL = [
    "true",
    "echo said",
    "exit 3",
    "kill -9 $$",
    "sleep 1000 & setsid sleep 1000 & echo left",
    "trap '' TERM; sleep 1000; sleep 1000",
]
PYTHON = [
    "def main(): print('said')",
    "import os\ndef main(): os._exit(3)",
    "import subprocess\ndef main(): subprocess.Popen(['sleep', '1000'])",
    "import threading\ndef main(): threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "import time\ndef main(): time.sleep(1000)",
]
TASKS_MAX = 60


def some_task(work: Work, dice: random.Random) -> Lease:
    fields = {"timeout": 0.1, "version": dice.choice(["v1", "v2"]), "cwd": dice.choice(["", "", "", "gone"])}
    if dice.random() < 0.6:
        return work.shell(dice.choice(SHELL), **fields)
    return work.python(dice.choice(PYTHON), **fields)


@pytest.mark.parametrize("seed", range(3))
def test_each_task_ends_once_and_all_room_comes_back(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    work = Work(tmp_path, cpus=3, grace_seconds=0.02, prefetch=4)
    work.run_shell("true")
    waiting = [some_task(work, dice) for _ in range(TASKS_MAX)]
    begun: list[int] = []
    ended: list[int] = []

    while len(ended) < TASKS_MAX:
        while waiting and work.executor.fits(waiting[-1].task):
            lease = waiting.pop()
            work.start(lease)
            begun.append(lease.token)
        if dice.random() < 0.2:
            work.executor.stop(dice.choice(begun), dice.choice([0.0, 0.01]))
        if len(ended) in (20, 40) and dice.random() < 0.2:
            kill(work.executor._supervisor.pid)
        ended += [lease.token for lease, _ in work.executor.collect(1.0)]

    assert sorted(ended) == sorted(begun)
    assert (list(work.executor.running), work.executor.offer().cpus) == ([], 3.0)
    work.close()
    assert work.remaining() == []
