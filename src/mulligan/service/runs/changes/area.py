"""What comes before a run, as `Service.starts` gives it: checks, a preview, starting without staying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.core.model.event_types import HostCapacity, Kept
    from mulligan.core.model.failure import Failure
    from mulligan.core.model.workflow import NoticeRule, Workflow
    from mulligan.errors import KeyUsed
    from mulligan.service.authoring.handler_trial import HandlerResult, HandlerTrial
    from mulligan.service.driving.driver import Capacity
    from mulligan.service.runs.changes.changes import Changes
    from mulligan.service.runs.changes.prepared_runs import Prepared
    from mulligan.service.runs.changes.preview import Preview
    from mulligan.service.runs.changes.starting import DetachedRun, ExistingRun
    from mulligan.service.runs.stored.damaged_runs import RemovedRuns
    from mulligan.service.runs.stored.run_reader import RunReader


class Starts:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader, changes: Callable[[], Changes]) -> None:
        self._reader = reader
        self._changes = changes

    @staticmethod
    def prepare(
        workflow: Workflow,
        inputs: dict[str, Any],
        cwd: Path,
        *,
        file: str = "",
        labels: Mapping[str, str] = MappingProxyType({}),
        changed_only: bool = False,
        forced: Sequence[str] = (),
        capacity: HostCapacity | None = None,
        has_files: bool = True,
        notify: Sequence[NoticeRule] = (),
    ) -> Prepared:
        """Check everything that can be checked before a run exists: inputs, labels, files that must be there.

        `capacity` is recorded, for the processes that drive the run later; `notify`, who else is notified about it.
        `has_files`: the steps find the files of this host, as they do unless a server runs them.
        """
        from mulligan.service.runs.changes import prepared_runs

        return prepared_runs.prepare(
            workflow,
            inputs,
            cwd,
            file,
            labels,
            changed_only=changed_only,
            forced=forced,
            capacity=capacity,
            has_files=has_files,
            notify=notify,
        )

    def capacity_of(self, run_id: int, given: HostCapacity | None = None) -> Capacity:
        """The capacity of this machine for a run: as given, otherwise as the run was started with."""
        from mulligan.service.driving import driver

        return driver.capacity_for(given, self._reader.capacity(run_id))

    def capacity_notes(self, workflow: Workflow, capacity: Capacity) -> list[str]:
        """The steps that ask for more than that, if they may be skipped or handled: the others refuse the start.

        None in a shared store, where a suitable worker may still be started.
        """
        from mulligan.service.runs.changes import capacity_checks

        return [] if self._reader.home.store_url or capacity.on else capacity_checks.notes(workflow, capacity)

    def permission_note(self, workflow: Workflow) -> str:
        """What the first run of a workflow says about agents that never ask for permission; "" for every other run."""
        from mulligan.service.decisions import agent_permissions

        return agent_permissions.first_run_note(self._reader, workflow)

    def start_detached(self, prepared: Prepared, *, key: str = "", wait: str = "") -> DetachedRun:
        """Start a run that a process in the background drives."""
        from mulligan.service.runs.changes import starting

        return starting.start_detached(self._changes(), prepared, key=key, wait=wait)

    def detach(self, run_id: int, *, asked: HostCapacity | None = None, wait: str = "") -> DetachedRun:
        """See that a process drives the run: a worker that is up, or a new process in the background.

        That has the capacity that the run was started with, unless another is asked for.
        """
        from mulligan.service.runs.changes import starting

        return starting.detach(self._reader, run_id, asked=asked, wait=wait)

    def find_existing_run(self, prepared: Prepared, key: str, used: KeyUsed) -> ExistingRun:
        """The run that was started with the key. `KeyMismatch` where its inputs differ."""
        from mulligan.service.runs.changes import starting

        return starting.find_existing_run(self._reader, prepared, key, used)

    def preview(
        self, workflow: Workflow, inputs: dict[str, Any], cwd: Path, capacity: Capacity | None = None
    ) -> Preview:
        """What a run of the workflow would do, and what is missing for it. Starts nothing."""
        from mulligan.service.runs.changes import preview

        return preview.preview(self._reader, workflow, inputs, cwd, capacity)

    def run_handler(
        self,
        trial: HandlerTrial,
        prepared: Prepared,
        failure: Failure,
        kept: Sequence[Kept] = (),
    ) -> HandlerResult:
        """Run an isolated handler as if its step had just failed."""
        from mulligan.service.authoring import handler_trial

        return handler_trial.run_handler(self._changes(), trial, prepared, failure, kept)

    def changed_file(self, run_id: int) -> str:
        """The workflow file of a run, if it has changed since the run was started; otherwise ""."""
        from mulligan.service.runs.changes import corrections

        return corrections.changed_file(self._reader, run_id)

    def reading_of(self, run_id: int) -> dict[str, Any]:
        """How `load_workflow` reads a corrected file of a run: with the inputs and the options of the run."""
        state = self._reader.lazy_state(run_id)
        from mulligan import formats

        return {"given": state.run.inputs, "options": formats.options_of(state.workflow)}

    def remove_run(self, run_id: int, *, is_dry: bool = False) -> RemovedRuns:
        """Remove a run that has ended or is damaged, and those that it called. `RunNotFinished`, `Refused`."""
        from mulligan.service.runs.stored import damaged_runs

        return damaged_runs.remove_run(self._reader, run_id, is_dry=is_dry)
