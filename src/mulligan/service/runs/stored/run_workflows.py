"""The workflow of a run as somebody has written it: its text if that is still there, otherwise its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

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
    number = published_number(reader, run_id)
    text = None if number is None else published_text(catalogue, record.workflow, number, used)
    published = None if text is None else number
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
    started = reader.logged_start(run_id)
    known = state.run.revision or started
    if started is None or known is None or not known.file:
        return "", False
    # Without a digest it is a file of the host of a client, and none of ours.
    return known.file, bool(known.digest) and digest_of(known.file) == known.digest


def published_number(reader: RunReader, run_id: int) -> int | None:
    """The number of the published version that a run was started with, as its label has it."""
    label = reader.labels(run_id).get(VERSION_LABEL, "")
    return int(label) if label.isascii() and label.isdigit() and len(label) < 10 else None


def published_text(catalogue: Catalogue, name: str, number: int, used: str) -> str | None:
    """The text of a published version; None if it is not published here, or is not the version that was used."""
    try:
        if version(encode(catalogue.load(name, number))) == used:
            return catalogue.workflow(name, number).text
    except MulliganError:
        pass
    return None
