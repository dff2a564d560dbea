"""Workers in jobs of a real Slurm die while they run steps, and the allocator dies while it submits jobs."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.support.private_slurm import PrivateSlurm, why_not

from mulligan.service.service import Service
from proof.crashes.faults import Fault
from proof.crashes.forked_processes import ForkedProcesses
from proof.crashes.outcome_checks import LAWS, TrialOutcome, complaints, nothing_lies_about, steady
from proof.crashes.served import ServedStage, expire_the_dead
from proof.crashes.workflow import YAML, written
from proof.stage import Stage, wait_until

PILOTS_MAX, TASKS = 3, 5
# Jobs of this partition wait for ever, so that no pilot takes a task away.
PROFILE = '[slurm.default]\ncpus = 1\npartition = "closed"\n'
WIDE = f"""
name: wide
steps:
  - step: work
    map: {{over: '${{{list(range(TASKS))}}}', as: n}}
    do: [{{shell: 'sh $ACT work'}}]
"""


def is_there() -> bool:
    return not why_not()


class PilotTrial:
    """One run of everything: its driver runs no step, a job of Slurm does. If that dies, another one is submitted."""

    def __init__(self, stage: Stage, processes: ForkedProcesses, expected: dict[str, Any], slurm: PrivateSlurm) -> None:
        self._served = ServedStage(stage, processes)
        self._stage = stage
        self._slurm = slurm
        self._expected = expected
        self._met = stage.folder / "pilot.met"
        self._is_replaced = False
        self.outcome: dict[str, Any] = {}
        stage.environment |= slurm.environ

    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        served = self._served
        file = written(self._stage, YAML)
        try:
            self._submit(fault)
            driver = served.start("driver", "run", file, "--parallel", "0", "--json", ends=True)

            def has_ended() -> bool:
                self._replace_dead()
                return not driver.is_alive

            served.wait_until(has_ended, lambda: f"the run does not end: {driver.said()} {self._said()}")
            self._replace_dead()
            with self._stage.service() as service:
                wrong = [*served.end(), *self._end(service)]
                shown = json.loads(driver.out.read_text())
                self.outcome = steady(shown)
                after = TrialOutcome(self._stage, service, shown, self._expected or self.outcome)
                wrong += complaints(after, [law for law in LAWS if law is not nothing_lies_about])
        finally:
            served.kill()
            self._slurm.cancel_all()
        return self._met.exists(), wrong

    def _submit(self, fault: Fault | None) -> None:
        moment = (fault.what, fault.nth) if fault else ("", 0)
        command = [sys.executable, "-m", "proof.crashes.pilot", *map(str, moment), str(self._met), "worker"]
        script = f"exec {shlex.join([*command, '--parallel', '2'])}"
        options = ("--cpus-per-task=2", "--job-name=pilot", "--no-requeue")
        self._slurm.submit(script, *options, environ=self._stage.environment, cwd=self._stage.folder)

    def _replace_dead(self) -> None:
        if self._met.exists() and not self._is_replaced:
            self._is_replaced = True
            self._submit(None)

    def _end(self, service: Service) -> Iterator[str]:
        """The pilots end when they are told to, and what the dead one had is given back."""
        self._slurm.run("scancel", "--full", "--signal=TERM", "--name=pilot")
        wait_until(lambda: not self._slurm.run("squeue", "--noheader").strip(), "the pilots do not end")
        expire_the_dead(service)
        said = self._said()
        if "Traceback" in said:
            yield f"a pilot wrote: {said}"

    def _said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._stage.folder.glob("pilot-*.out")))


class AllocatorTrial:
    """`slurm auto` dies while it submits pilots for queued tasks; the next one submits what is missing, and no more."""

    def __init__(self, stage: Stage, processes: ForkedProcesses, slurm: PrivateSlurm) -> None:
        self._served = ServedStage(stage, processes)
        self._stage = stage
        self._slurm = slurm
        # Nothing of the user's own: no profiles, no files about earlier pilots.
        own = {"XDG_CONFIG_HOME": f"{stage.folder}/config", "XDG_STATE_HOME": f"{stage.folder}/state"}
        stage.environment |= {**slurm.environ, **own}

    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        served = self._served
        self._stage.workflow(PROFILE, "mulligan.toml")
        file = self._stage.workflow(WIDE)
        try:
            with self._stage.service() as service:
                served.start("driver", "run", file, "--parallel", "0", "--json", ends=True)
                served.wait_until(lambda: queued_tasks(service) == TASKS, "the tasks are not queued")
                has_happened = self._allocate("first", fault)
                # Another one at once, and one more: it finds nothing to do.
                for name in ("second", "third"):
                    assert not self._allocate(name, None)
                return has_happened, [*self._wrong_jobs(), *self._wrong_tasks(service)]
        finally:
            served.kill()
            self._slurm.cancel_all()

    def _allocate(self, name: str, fault: Fault | None) -> bool:
        """One look of an allocator; whether its moment came."""
        words = ("slurm", "auto", "--max", str(PILOTS_MAX), "--once")
        process = self._served.start(name, *words, fault=fault, ends=True)
        wait_until(lambda: not process.is_alive, lambda: f"it does not end: {process.said()}")
        return process.has_met_its_moment

    def _wrong_jobs(self) -> Iterator[str]:
        lines = self._slurm.run("squeue", "--array", "--noheader", "--format=%j %K").splitlines()
        jobs = Counter(lines)
        if sum(jobs.values()) != PILOTS_MAX or set(jobs.values()) != {1}:
            yield f"pilots_are_submitted_once: there are {dict(jobs)} for {TASKS} tasks, at most {PILOTS_MAX} at a time"

    def _wrong_tasks(self, service: Service) -> Iterator[str]:
        if queued_tasks(service) != TASKS:
            yield f"no_task_is_harmed: {queued_tasks(service)} tasks are queued, and there were {TASKS}"


def queued_tasks(service: Service) -> int:
    """How many tasks wait for a worker."""
    return sum(shape.count for shape in service.reader.store.queued_shapes())
