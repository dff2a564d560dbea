"""Workflows that a caller names: what is published, a text, or a file of this machine. Read, and prepared for a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.workflow import Workflow
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.errors import InputInvalid
from mulligan.formats import load, options_of
from mulligan.service.runs.changes.answers import Given, StartedRun, shown_status
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.corrections import CorrectedWorkflow
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare
from mulligan.service.runs.changes.preview import Preview, preview
from mulligan.service.runs.changes.starting import check_key
from mulligan.service.server.catalogue.catalogue import Catalogue
from mulligan.service.server.catalogue.texts import WorkflowText, read_text
from mulligan.service.server.server_client import start_published


class WorkflowSource(msgspec.Struct, frozen=True):
    """Where a workflow comes from: what is published under a name, a text, or a file of this machine."""

    workflow: str = ""
    # The newest by default.
    version: int | None = None
    text: str = ""
    # The system whose file the text is; by default it is recognized.
    format: str | None = None
    file: str = ""

    @property
    def is_code(self) -> bool:
        """Whether it is a text or a file of the caller, which nobody has published."""
        return bool(self.text or self.file)

    @property
    def given(self) -> list[str]:
        """Which of the three are named."""
        return [name for name in ("workflow", "text", "file") if getattr(self, name)]


class WorkflowSources:
    """Runs of workflows that are still to be read, in the name of the user of a `Service`."""

    def __init__(self, changes: Changes, catalogue: Callable[[], Catalogue], *, is_for_others: bool) -> None:
        self._changes = changes
        self._reader = changes.reader
        self._catalogue = catalogue
        self._is_for_others = is_for_others

    def preview(self, source: WorkflowSource, inputs: Mapping[str, Any]) -> Preview:
        """What a run would do, and what is missing for it. Starts nothing."""
        folder = self._reader.home.run_folder(str(self._folder()))
        return preview(self._reader, self.load(source, inputs), dict(inputs), folder)

    def start(
        self, source: WorkflowSource, inputs: Mapping[str, Any], labels: Mapping[str, str], *, key: str = ""
    ) -> StartedRun:
        """`Changes.start`, with a workflow that is still to be read."""
        key = check_key(key) if key else ""
        if self._reader.home.is_remote and not source.is_code:
            _refuse_unclear(source)
            found = start_published(self._reader.home, source.workflow, source.version, inputs, labels, key=key)
            record = self._reader.record(found.run_id)
            return StartedRun(found.run_id, record.workflow, record.version, shown_status(record.status), found.is_new)
        newest = Given(inputs, labels) if source.workflow and source.version is None else None
        return self._changes.start(self.prepare(source, inputs, labels), key, newest)

    def prepare(self, source: WorkflowSource, inputs: Mapping[str, Any], labels: Mapping[str, str]) -> Prepared:
        """A run of the workflow, checked. Of a text no other file is read, and it is no Python."""
        if not source.is_code:
            _refuse_unclear(source)
            return self._catalogue().prepare(source.workflow, source.version, inputs, labels, cwd=self._folder())
        file = os.path.abspath(source.file) if source.file else ""
        has_files = not self._reader.home.is_remote
        workflow = self.load(source, inputs)
        return prepare(workflow, dict(inputs), self._folder(), file, labels, has_files=has_files)

    def load(self, source: WorkflowSource, given: Mapping[str, Any], **how: Any) -> Workflow:
        """The workflow. `given` and `how`: with what a file is read."""
        _refuse_unclear(source)
        if source.file:
            if self._is_for_others:
                raise InputInvalid("a server reads no files of its clients", hint="send the text", argument="file")
            return load(source.file, given=given, **how)
        if source.text:
            return read_text(WorkflowText(source.text, "workflow.yaml", source.format)).workflow
        return self._catalogue().load(source.workflow, source.version)

    def _folder(self) -> Path:
        """Where the steps work: the folder of this process, or for clients of a server that of each worker."""
        return Path(WORKER_FOLDER) if self._is_for_others else Path.cwd()

    def correction(self, run_id: int, source: WorkflowSource, inputs: Mapping[str, Any]) -> CorrectedWorkflow:
        """The workflow with which another round of a run continues, and inputs that the run does not have."""
        file = os.path.abspath(source.file) if source.file else ""
        return CorrectedWorkflow(self.load_for(run_id, source, inputs), dict(inputs), file, may_rename=False)

    def load_for(self, run_id: int, source: WorkflowSource, inputs: Mapping[str, Any]) -> Workflow:
        """The workflow for a run that exists: by default a version of its own one, read with its inputs and options."""
        state = self._reader.state(run_id)
        if not source.given:
            source = msgspec.structs.replace(source, workflow=state.workflow.name)
        return self.load(source, {**state.run.inputs, **inputs}, options=options_of(state.workflow))


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
