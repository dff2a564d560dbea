"""Starting and changing runs for a caller that cannot drive them itself, such as an agent.

After each change a worker of the store drives the run, or a process in the background is started for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mulligan.core.model.workflow import Workflow
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.errors import InputInvalid
from mulligan.formats import load, options_of
from mulligan.service.authoring.values import read_budgets
from mulligan.service.runs.changes.change_verbs import (
    ChangeResult,
    ChangeVerbs,
    ForkResult,
    Given,
    RetryResult,
    StartedRun,
)
from mulligan.service.runs.changes.corrections import CorrectedWorkflow
from mulligan.service.runs.changes.preview import Preview, preview
from mulligan.service.runs.changes.run_control import Prepared, RunControl, prepare
from mulligan.service.runs.changes.starting import check_key, detach, refuse_unstartable
from mulligan.service.server.catalogue.catalogue import Catalogue
from mulligan.service.server.catalogue.texts import WorkflowText, read_text
from mulligan.service.server.server_client import start_published

Changed = TypeVar("Changed")


class WorkflowSource(msgspec.Struct, frozen=True):
    """Where a workflow comes from: what is published under a name, a text, or a file of this machine."""

    workflow: str = ""
    # The newest by default.
    version: int | None = None
    text: str = ""
    file: str = ""

    @property
    def is_code(self) -> bool:
        """Whether it is a text or a file of the caller, which nobody has published."""
        return bool(self.text or self.file)

    @property
    def given(self) -> list[str]:
        """Which of the three are named."""
        return [name for name in ("workflow", "text", "file") if getattr(self, name)]


class UnattendedRuns:
    """Runs that their caller does not drive, in the name of the user of a `Service`."""

    def __init__(self, control: RunControl, catalogue: Callable[[], Catalogue], *, is_for_others: bool) -> None:
        self._control = control
        self._reader = control.reader
        self._changes = ChangeVerbs(control)
        self._catalogue = catalogue
        # On a server its workers take every run.
        self._has_workers = is_for_others or control.reader.home.is_remote
        self._is_for_others = is_for_others

    # -- starting ----------------------------------------------------------------------------------------------------

    def preview(self, source: WorkflowSource, inputs: Mapping[str, Any]) -> Preview:
        """What a run would do, and what is missing for it. Starts nothing."""
        folder = self._reader.home.run_folder(str(self._folder()))
        return preview(self._reader, self._load(source, inputs), dict(inputs), folder)

    def start(
        self, source: WorkflowSource, inputs: Mapping[str, Any], labels: Mapping[str, str], *, key: str = ""
    ) -> StartedRun:
        """Start a run and see that it is driven; with a key the run that was started with it, if there is one."""
        key = check_key(key) if key else ""
        if self._reader.home.is_remote and not source.is_code:
            _refuse_unclear(source)
            found = start_published(self._reader.home, source.workflow, source.version, inputs, labels, key=key)
            record = self._reader.record(found.run_id)
            status = "running" if record.status == "new" else record.status
            return StartedRun(found.run_id, record.workflow, record.version, status, found.is_new)
        prepared = self._prepare(source, inputs, labels)
        if not self._has_workers:
            refuse_unstartable(self._control, prepared)
        newest = Given(inputs, labels) if source.workflow and source.version is None else None
        started = self._changes.start(prepared, key, newest)
        self.keep_driven(started.run_id)
        return started

    def _prepare(self, source: WorkflowSource, inputs: Mapping[str, Any], labels: Mapping[str, str]) -> Prepared:
        if not source.is_code:
            _refuse_unclear(source)
            return self._catalogue().prepare(source.workflow, source.version, inputs, labels, cwd=self._folder())
        file = os.path.abspath(source.file) if source.file else ""
        has_files = not self._reader.home.is_remote
        workflow = self._load(source, inputs)
        return prepare(workflow, dict(inputs), self._folder(), file, labels, has_files=has_files)

    def _load(self, source: WorkflowSource, given: Mapping[str, Any], **how: Any) -> Workflow:
        _refuse_unclear(source)
        if source.file:
            if self._is_for_others:
                raise InputInvalid("a server reads no files of its clients", hint="send the text", argument="file")
            return load(source.file, given=given, **how)
        if source.text:
            return read_text(WorkflowText(source.text, "workflow.yaml")).workflow
        return self._catalogue().load(source.workflow, source.version)

    def _folder(self) -> Path:
        """Where the steps work: the folder of this process, or for clients of a server that of each worker."""
        return Path(WORKER_FOLDER) if self._is_for_others else Path.cwd()

    # -- changing ----------------------------------------------------------------------------------------------------

    def cancel(self, run_id: int, *, now: bool = False, reason: str = "", dry_run: bool = False) -> ChangeResult:
        """Stop a run: cleanup, undo and `end` still run; with `now` only `end`."""
        found = self._changes.cancel(run_id, now=now, reason=reason, dry_run=dry_run)
        return self._driven(run_id, found, dry_run=dry_run)

    def pause(self, run_id: int, *, step: str = "", reason: str = "", dry_run: bool = False) -> ChangeResult:
        """Start nothing more of a run, or of one of its steps, until `resume`."""
        return self._changes.pause(run_id, step=step, reason=reason, dry_run=dry_run)

    def resume(
        self, run_id: int, *, step: str = "", steps: int = 0, reason: str = "", dry_run: bool = False
    ) -> ChangeResult:
        """Let a paused run or step continue, or a run that nothing is running any more."""
        record = self._reader.record(run_id)
        is_left = record.status in ("new", "running") and self._reader.driver_of(record) is None
        if is_left and not step and not steps and not self._has_workers and record.parent_run_id is None:
            follows = ["a process in the background continues it: no other drives it"]
            found = ChangeResult(run_id, dry_run, "running", follows, [], [], [])
        else:
            found = self._changes.resume(run_id, step=step, steps=steps, reason=reason, dry_run=dry_run)
        return self._driven(run_id, found, dry_run=dry_run)

    def retry(
        self,
        run_id: int,
        *,
        from_step: str = "",
        items: Sequence[int] | None = None,
        adjust: bool = False,
        budgets: Sequence[str] = (),
        source: WorkflowSource | None = None,
        inputs: Mapping[str, Any] | None = None,
        keep_completed: bool = False,
        from_start: bool = False,
        force: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> RetryResult:
        """Open another round; with a `source` the run continues with that workflow."""
        if items is not None and not from_step:
            raise InputInvalid("'items' needs 'from_step'", hint="name the map step", argument="items")
        if source is None and inputs:
            hint = "name a version, or give a file or a text"
            raise InputInvalid("'inputs' is for a corrected workflow", hint=hint, argument="inputs")
        found = self._changes.retry(
            run_id,
            from_step=from_step,
            items=items,
            adjust=adjust,
            corrected=None if source is None else self._corrected(run_id, source, inputs or {}),
            budgets=read_budgets(budgets),
            keep_completed=keep_completed,
            from_start=from_start,
            force=force,
            reason=reason,
            dry_run=dry_run,
        )
        return self._driven(run_id, found, dry_run=dry_run)

    def _corrected(self, run_id: int, source: WorkflowSource, inputs: Mapping[str, Any]) -> CorrectedWorkflow:
        file = os.path.abspath(source.file) if source.file else ""
        workflow = self._load_for(run_id, source, inputs)
        return CorrectedWorkflow(workflow, dict(inputs), file, may_rename=False)

    def fork(
        self,
        run_id: int,
        from_step: str,
        inputs: Mapping[str, Any],
        source: WorkflowSource | None = None,
        *,
        keep_completed: bool = False,
        dry_run: bool = False,
    ) -> ForkResult:
        """`ChangeVerbs.fork`, with a workflow that is still to be read; the new run is driven."""
        workflow = None if source is None else self._load_for(run_id, source, inputs)
        found = self._changes.fork(
            run_id,
            from_step,
            dict(inputs),
            workflow,
            keep_completed=keep_completed,
            dry_run=dry_run,
        )
        return found if found.fork_run_id is None else self._driven(found.fork_run_id, found, dry_run=dry_run)

    def _load_for(self, run_id: int, source: WorkflowSource, inputs: Mapping[str, Any]) -> Workflow:
        """The workflow for a run that exists: by default a version of its own one, read with its inputs and options."""
        state = self._reader.state(run_id)
        if not source.given:
            source = msgspec.structs.replace(source, workflow=state.workflow.name)
        return self._load(source, {**state.run.inputs, **inputs}, options=options_of(state.workflow))

    # -- driving -----------------------------------------------------------------------------------------------------

    def _driven(self, run_id: int, found: Changed, *, dry_run: bool) -> Changed:
        if not dry_run:
            self.keep_driven(run_id)
        return found

    def keep_driven(self, run_id: int) -> None:
        """Start a process in the background for a run that goes on and that nobody drives. `RunNotTakenUp`."""
        if self._has_workers:
            return
        record = self._reader.record(run_id)
        root = record if record.parent_run_id is None else self._reader.record(record.root_run_id or run_id)
        if root.status in RUN_ENDED or root.status == "paused" or self._reader.driver_of(root) is not None:
            return
        detach(self._reader, root.run_id)


def _refuse_unclear(source: WorkflowSource) -> None:
    """`InputInvalid` unless exactly one workflow is named."""
    if len(source.given) != 1:
        named = " and ".join(f"'{name}'" for name in source.given)
        raise InputInvalid(
            f"{named} name more than one workflow" if named else "no workflow is named",
            hint="give exactly one of workflow, file, text",
            argument=source.given[-1] if source.given else "workflow",
        )
    if source.is_code and source.version is not None:
        raise InputInvalid("only a published workflow has versions", hint="leave it out", argument="version")
