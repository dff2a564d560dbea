"""The chaos, shortly: two workers, and each kind of trouble once, steered by what was done and not by a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mulligan.testing.postgres import own_server
from proof.chaos.campaign import Chaos, Settings
from proof.stage import wait_until

RUNS = 48
# Commands that so many runs take undisturbed, about.
COMMANDS = 200
SHORT = Settings(seed=7, runs=RUNS, minutes=0.0, workers=2, lease_seconds=2.0, finish_minutes=2.0, watchers=3)
TROUBLES: tuple[Callable[[Chaos], None], ...] = (
    lambda chaos: outlast(chaos, "immediate"),
    lambda chaos: chaos.trouble.attack(chaos.fleet.workers[1], "kill", 0, 0),
    lambda chaos: chaos.trouble.attack_sender(0),
    lambda chaos: chaos.trouble.attack_api("kill", 0),
    lambda chaos: chaos.trouble.cut(chaos.fleet.workers[0], "silent", 0.5),
    lambda chaos: chaos.trouble.stand_in(chaos.fleet.workers[-1], "a page with 404", 0.5),
    lambda chaos: chaos.trouble.restart("kill -9", 0.3),
    lambda chaos: chaos.trouble.attack(chaos.fleet.workers[1], "stop with supervisor", 0, 1.5),
)


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    """All that it has started ends with it."""
    with own_server() as server, Chaos(SHORT, server, tmp_path) as chaos:
        yield chaos


@pytest.mark.nightly
def test_no_trouble_with_workers_server_or_network_loses_or_doubles_anything(chaos: Chaos) -> None:
    for number, trouble in enumerate(TROUBLES):
        wait_until(lambda share=COMMANDS * number // 9: has_begun(chaos, share), "nobody goes on")
        trouble(chaos)
    wait_until(lambda: has_begun(chaos, COMMANDS * 8 // 9), "nobody goes on")
    chaos.calm_down()
    chaos.finish()
    chaos.check()

    assert chaos.report.findings == []
    assert chaos.report.totals.runs >= RUNS
    assert sum(chaos.trouble.counts.values()) == len(TROUBLES)


def outlast(chaos: Chaos, how: str) -> None:
    """An outage that is longer than a lease, in the middle of a slow step; until everybody had a lease to come back."""
    wait_until(lambda: has_begun(chaos, 10 * COMMANDS) or is_rendering(chaos), "nobody begins")
    chaos.trouble.outage(how, 1.6 * SHORT.lease_seconds)
    wait_until(lambda: has_begun(chaos, 10 * COMMANDS) or not chaos.trouble.is_quiet, "the outage does not end")
    assert len(chaos.trouble.outages) == 1


def is_rendering(chaos: Chaos) -> bool:
    """Whether the last thing that a slow step wrote is that it began."""
    slow = [line.verb for line in chaos.journal.lines() if line.place == "render"]
    return slow[-1:] == ["start"]


def has_begun(chaos: Chaos, commands: int) -> bool:
    """Whether so many commands have begun, or nothing is left to do. What is due of the trouble goes on meanwhile."""
    chaos.trouble.go_on()
    chaos.look()
    return chaos.journal.begun > commands or chaos.is_all_done()
