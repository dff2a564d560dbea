"""The processes around a run, each with the moments at which it may die, and the trial in which it does.

| kind | who dies | while |
|---|---|---|
| http_server | the process that answers requests | a client starts, decides, cancels and retries, and asks again |
| background | the process that fires schedules and sends notices | three instants are due, and twelve notices |
| remote | a worker over HTTP | it runs the steps of a run |
| full_disk | nobody; the disk of a remote worker is full for a while | so many commands of a run have begun |
| dask | the driver of a run on a Dask cluster | its steps run there |
| dask_worker | a worker of the cluster | it runs some of them |
| pilot | a worker in a job of Slurm | it runs the steps of a run |
| allocator | `mulligan slurm auto` | it submits pilots |
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.support.private_slurm import PrivateSlurm

from mulligan.ports import FAULT_POINTS
from mulligan.ports.fault_points import SERVER_FAULT_POINTS
from proof.crashes import dask_trials, remote_trials, slurm_trials
from proof.crashes.background_trials import BackgroundTrial
from proof.crashes.boundaries import points
from proof.crashes.dask_trials import DaskTrial
from proof.crashes.faults import STORES, Fault
from proof.crashes.forked_processes import ForkedProcesses, forked_processes
from proof.crashes.remote_trials import FullDiskTrial, RemoteTrial
from proof.crashes.server_trials import ServerTrial
from proof.crashes.slurm_trials import AllocatorTrial, PilotTrial
from proof.crashes.worktree_trials import WorktreeTrial
from proof.stage import Stage


class Cast:
    """Who forks processes, and the Slurm, each from the first trial on that needs it."""

    def __init__(self, folder: Path, exits: ExitStack, defect: str = "") -> None:
        self._folder = folder
        self._exits = exits
        self._defect = defect
        # How a run ends to which nothing happens, by the kind of trial and the store.
        self.expected: dict[tuple[str, str], dict[str, Any]] = {}

    @cached_property
    def processes(self) -> ForkedProcesses:
        return self._exits.enter_context(forked_processes(Stage(self._folder), defect=self._defect))

    @cached_property
    def processes_with_dask(self) -> ForkedProcesses:
        return self._exits.enter_context(forked_processes(Stage(self._folder), has_dask=True, defect=self._defect))

    @cached_property
    def slurm(self) -> PrivateSlurm:
        return self._exits.enter_context(PrivateSlurm())


class ScenarioTrial(Protocol):
    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        """Whether the fault happened, and what is wrong."""


class Scenario(NamedTuple):
    """`make` gets the stage, the cast and the outcome of the undisturbed run, {} for that one itself."""

    make: Callable[[Stage, Cast, dict[str, Any]], ScenarioTrial]
    stores: tuple[str, ...]
    points: tuple[str, ...]
    # Whether the outcome of the run is compared with that of an undisturbed one.
    is_compared: bool = False
    needs: str = ""
    is_there: Callable[[], bool] = lambda: True


ENGINE = tuple(FAULT_POINTS)
SCENARIOS = {
    "http_server": Scenario(
        lambda stage, cast, _: ServerTrial(stage, cast.processes), STORES, points("request", "write")
    ),
    "background": Scenario(
        lambda stage, cast, _: BackgroundTrial(stage, cast.processes),
        STORES,
        (*SERVER_FAULT_POINTS, *points("send", "write")),
    ),
    "remote": Scenario(
        lambda stage, cast, expected: RemoteTrial(stage, cast.processes, expected),
        STORES,
        ("after_lease", "before_report", *points("call")),
        is_compared=True,
    ),
    "full_disk": Scenario(
        lambda stage, cast, expected: FullDiskTrial(stage, cast.processes, expected),
        STORES,
        ("full",),
        is_compared=True,
        needs="way to mount a small disk (run as root)",
        is_there=remote_trials.can_mount,
    ),
    "dask": Scenario(
        lambda stage, cast, expected: DaskTrial(stage, cast.processes_with_dask, expected),
        STORES,
        ENGINE,
        is_compared=True,
        needs="Dask (pip install 'mulligan[dask]')",
        is_there=dask_trials.is_there,
    ),
    "dask_worker": Scenario(
        lambda stage, cast, expected: DaskTrial(stage, cast.processes_with_dask, expected),
        ("sqlite",),
        points("message", "order", "start"),
        is_compared=True,
        needs="Dask (pip install 'mulligan[dask]')",
        is_there=dask_trials.is_there,
    ),
    "worktrees": Scenario(lambda stage, cast, _: WorktreeTrial(stage, cast.processes), STORES, ENGINE),
    "pilot": Scenario(
        lambda stage, cast, expected: PilotTrial(stage, cast.processes, expected, cast.slurm),
        ("postgres",),
        ("after_lease", "before_report", *points("write")),
        is_compared=True,
        needs="Slurm that root can start (apt-get install slurm-wlm munge)",
        is_there=slurm_trials.is_there,
    ),
    "allocator": Scenario(
        lambda stage, cast, _: AllocatorTrial(stage, cast.processes, cast.slurm),
        ("postgres",),
        points("program", "write"),
        needs="Slurm that root can start (apt-get install slurm-wlm munge)",
        is_there=slurm_trials.is_there,
    ),
}


def held(cast: Cast, stages: Callable[[], Any], store: str, fault: Fault) -> tuple[bool, list[str]]:
    """Hold one trial on the next of the stages, after an undisturbed one where outcomes are compared."""
    scenario, key = SCENARIOS[fault.kind], (fault.kind, store)
    if scenario.is_compared and key not in cast.expected:
        with stages() as stage:
            undisturbed: Any = scenario.make(stage, cast, {})
            _, wrong = undisturbed.held(None)
            assert not wrong, wrong
            cast.expected[key] = undisturbed.outcome
    with stages() as stage:
        try:
            return scenario.make(stage, cast, cast.expected.get(key, {})).held(fault)
        except AssertionError as error:
            return True, [f"it_comes_to_its_end: {error}"]
