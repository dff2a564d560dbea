"""A run whose steps run on a Dask cluster: its driver dies and is resumed, or one of the Dask workers dies."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.service import Service
from proof.crashes.faults import Fault
from proof.crashes.forked_processes import ForkedProcess, ForkedProcesses
from proof.crashes.outcome_checks import LAWS, TrialOutcome, complaints, steady
from proof.crashes.served import ServedStage
from proof.crashes.workflow import YAML, written
from proof.stage import Stage

# How often a run is taken up at most until it has to be at its end.
RESUMES_MAX = 4


def is_there() -> bool:
    return find_spec("distributed") is not None


class DaskTrial:
    """One run of everything, on a scheduler and two Dask workers of its own."""

    def __init__(self, stage: Stage, processes: ForkedProcesses, expected: dict[str, Any]) -> None:
        self._served = ServedStage(stage, processes)
        self._stage = stage
        self._expected = expected
        self._has_happened = False
        self.outcome: dict[str, Any] = {}

    def held(self, fault: Fault | None) -> tuple[bool, list[str]]:
        served = self._served
        file = written(self._stage, YAML)
        is_of_worker = fault is not None and fault.kind == "dask_worker"
        try:
            scheduler = served.start("scheduler", program="scheduler").first_line()
            for name in ("first", "second"):
                words = (scheduler, name, self._stage.folder / name)
                doomed = fault if is_of_worker and name == "first" else None
                served.start(name, *words, program="dask_worker", fault=doomed).first_line()
            on = scheduler.replace("tcp://", "dask://")
            with self._stage.service() as service:
                shown = self._brought_to_its_end(service, file, on, None if is_of_worker else fault)
                wrong = served.end()
                self.outcome = steady(shown)
                after = TrialOutcome(self._stage, service, shown, self._expected or self.outcome)
                wrong += complaints(after, LAWS)
        finally:
            served.kill()
        return served.has_happened or self._has_happened, wrong

    def _brought_to_its_end(self, service: Service, file: str, on: str, fault: Fault | None) -> dict[str, Any]:
        """Run it, and resume it until it has ended; what is shown of it then."""
        for number in range(RESUMES_MAX):
            runs = [run for run in service.reader.runs(limit=100) if run.parent_run_id is None]
            if runs and runs[0].status in RUN_ENDED:
                self._expire_the_dead(service)
                return service.runs.show(runs[0].run_id)
            words = ("resume", runs[0].run_id) if runs else ("run", file)
            doomed = fault if number == 0 else None
            driver = self._served.start(f"driver-{number}", *words, "--on", on, "--json", fault=doomed, ends=True)
            shown = self._shown(driver)
            if shown:
                return shown
        raise AssertionError(f"the run does not end: {driver.said()}")

    def _shown(self, driver: ForkedProcess) -> dict[str, Any]:
        """What it showed when it had ended; nothing if it was killed."""
        self._served.wait_until(lambda: not driver.is_alive, lambda: f"it does not end: {driver.said()}")
        self._has_happened |= driver.has_met_its_moment
        out = driver.out.read_text()
        try:
            shown: dict[str, Any] = json.loads(out) if out else {}
        except ValueError:
            return {}  # killed in the middle of it
        return shown

    def _expire_the_dead(self, service: Service) -> None:
        """Killed when the run was over already: whoever comes next finds the dead."""
        with open_driver(service.reader):
            pass
