"""The workflow of a run as somebody has written it: its text if that is still there, otherwise its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.events import RunStarted
from mulligan.core.model.workflow import encode, version
from mulligan.core.state.state import State
from mulligan.errors import MulliganError
from mulligan.service.runs.changes.corrections import digest_of
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.catalogue.catalogue import VERSION_LABEL, Catalogue

# A longer text is not given whole, and of a definition only the first steps.
TEXT_CHARS_MAX, STEPS_MAX = 200_000, 50


class RunWorkflow(msgspec.Struct, frozen=True):
    """The workflow that a run uses now. Exactly one of `text` and `definition` is given."""

    run_id: int
    name: str
    # Of the definition.
    version: str
    # The number of the published version, if it is one.
    published: int | None
    # The file that it was read from, if that is known; whether it still has the same content.
    file: str
    is_file_same: bool
    text: str | None
    # As the engine reads it: the first steps, and how many there are.
    definition: dict[str, Any] | None
    step_count: int


def read_run_workflow(reader: RunReader, catalogue: Catalogue, run_id: int) -> RunWorkflow:
    """The workflow of a run. `UnknownRun`."""
    record, state = reader.record(run_id), reader.lazy_state(run_id)
    file, is_same = _file(reader, run_id, state)
    used = state.run.present_version or record.version
    published, text = _published(reader, catalogue, run_id, record.workflow, used)
    if text is None and is_same:
        text = Path(file).read_text(encoding="utf-8", errors="replace")[:TEXT_CHARS_MAX]
    steps = msgspec.to_builtins(state.workflow.steps[:STEPS_MAX])
    return RunWorkflow(
        run_id=run_id,
        name=record.workflow,
        version=used,
        published=published,
        file=file,
        is_file_same=is_same,
        text=text,
        definition={"name": state.workflow.name, "steps": steps} if text is None else None,
        step_count=len(state.workflow.steps),
    )


def _file(reader: RunReader, run_id: int, state: State) -> tuple[str, bool]:
    started = next((entry.fact for entry in reader.store.log(run_id, limit=1)), None)
    known: Any = state.run.revision or started
    if not isinstance(started, RunStarted) or not known.file:
        return "", False
    # Without a digest it is a file of the host of a client, and none of ours.
    return known.file, bool(known.digest) and digest_of(known.file) == known.digest


def _published(
    reader: RunReader, catalogue: Catalogue, run_id: int, name: str, used: str
) -> tuple[int | None, str | None]:
    """The published version that a run uses, and its text."""
    label = reader.labels(run_id).get(VERSION_LABEL, "")
    if not (label.isascii() and label.isdigit() and len(label) < 10):
        return None, None
    try:
        if version(encode(catalogue.load(name, int(label)))) == used:
            return int(label), catalogue.workflow(name, int(label)).text
    except MulliganError:
        pass  # it is not published here
    return None, None
