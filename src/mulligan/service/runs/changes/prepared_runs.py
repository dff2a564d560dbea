"""A run before it exists: its workflow, its inputs and its options, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from mulligan.core.model.event_types import HostCapacity
from mulligan.core.model.workflow import NoticeRule, Workflow, encode, version
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.errors import UnknownStep
from mulligan.language.input_values import check_inputs, refuse_references
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.runs.changes.preflight import check_labels, refuse_missing_files
from mulligan.service.runs.changes.script_guard import refuse_start_while_loading


class Prepared(msgspec.Struct, frozen=True):
    """A workflow and its inputs, checked: ready to be started."""

    workflow: Workflow
    data: bytes
    version: str
    inputs: dict[str, Any]
    cwd: Path
    # The file that the workflow was read from; "" if there is none.
    file: str = ""
    # Whether unchanged steps take over the results of earlier runs, and which steps never do.
    changed_only: bool = False
    forced: tuple[str, ...] = ()
    # To find the run in lists.
    labels: dict[str, str] = {}
    # What the processes that drive the run have in place of what their machine has.
    capacity: HostCapacity | None = None
    # Who is notified about the run, besides those that the workflow names.
    notify: tuple[NoticeRule, ...] = ()


def prepare(
    workflow: Workflow,
    given: dict[str, Any],
    cwd: Path,
    file: str = "",
    labels: Mapping[str, str] = MappingProxyType({}),
    *,
    changed_only: bool = False,
    forced: Sequence[str] = (),
    capacity: HostCapacity | None = None,
    has_files: bool = True,
    notify: Sequence[NoticeRule] = (),
) -> Prepared:
    """Check everything that can be checked before a run exists: inputs, labels, files that must be there.

    `changed_only`: steps that are up to date take over the results of earlier runs, except those in `forced`.
    `has_files`: the steps find the files of this host. What was published with its files works where a worker has
    unpacked them, and not in `cwd`.
    """
    if workflow.source:
        cwd = Path(WORKER_FOLDER)
    refuse_start_while_loading(workflow)
    inputs = check_inputs(workflow, given)
    refuse_references(inputs)
    if has_files:
        refuse_missing_files(workflow, cwd)
    prepared = prepare_checked(workflow, inputs, cwd, file, check_labels({**workflow.labels, **labels}))
    steps = {name: None for step in workflow.steps for name in (step.name, step.sweep) if name}
    for name in forced:
        if name not in steps:
            message = f"'{name}' is not a step of '{workflow.name}'"
            raise UnknownStep(message, hint=did_you_mean(name, steps), step=name)
    return msgspec.structs.replace(
        prepared,
        changed_only=changed_only,
        forced=tuple(dict.fromkeys(forced)),
        capacity=capacity,
        notify=tuple(notify),
    )


def prepare_checked(
    workflow: Workflow, inputs: dict[str, Any], cwd: Path, file: str = "", labels: dict[str, str] | None = None
) -> Prepared:
    if workflow.schedules:
        # Another time of starting is not another workflow.
        workflow = msgspec.structs.replace(workflow, schedules={})
    data = encode(workflow)
    return Prepared(workflow, data, version(data), inputs, cwd, file, labels=labels or {})
