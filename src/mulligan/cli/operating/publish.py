"""`mulligan publish` and `mulligan workflows`: the catalogue of a store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from mulligan import formats
from mulligan.cli.output.tables import age, cut, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_bytes, show_json, show_result, show_warnings
from mulligan.cli.words.options import AsJson, By, HomeFolder, System, pairs, service_at, where
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.authoring.named_files import read_file
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.catalogue.catalogue import PublishedWorkflow
from mulligan.service.server.catalogue.texts import published_reference
from mulligan.service.service import Service

NOTE_CHARS_MAX = 60
PAGE = 1000


def publish(
    file: Annotated[Path, Argument("FILE", "A workflow file, or a Python file: what it builds is published.")],
    name: Annotated[str | None, Option("NAME", "The name to publish it under (default: that of the workflow).")] = None,
    note: Annotated[str, Option("TEXT", "Why it is published, which is recorded.")] = "",
    label: Annotated[
        list[str] | None, Option("KEY=VALUE", "A label of the version and of its runs (repeatable).")
    ] = None,
    system: System = None,
    is_dry: Annotated[bool, Flag("Check the file, say what would be published, and stop.", "--dry-run")] = False,
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Publish a workflow file in the catalogue of a store, from which servers and schedules start it.

    A version never changes; the same text again is the same version. The file must be whole by itself: what it
    includes is not published with it. Its `schedules` are in force from now on.

    A Python file is run here, and what it builds is published, as `convert` writes it: of a program, the text of its
    module; of a flow, the names of its functions, whose modules the workers need.
    """
    text, file = _text(file)
    with service_at(home, by) as service:
        done = service.catalogue.publish(
            name if name is not None else service.catalogue.name_for(text, file.name, system),
            text,
            file=file.name,
            format=system,
            note=note,
            labels=pairs(label, "label", "--label name=value"),
            dry_run=is_dry,
        )
    if as_json:
        show_result(done)
        return
    show_warnings(done.warnings)
    one = done.workflow
    if not done.is_new:
        show(f"'{one.name}' has this text already, as version {one.version}")
    else:
        show(f"{'would publish' if is_dry else 'published'} '{one.name}' as version {one.version}")
    if done.schedules:
        show(f"schedules: {', '.join(done.schedules)}")
    if done.removed_schedules:
        show(f"removed schedules: {', '.join(done.removed_schedules)}")
    if done.is_new and not is_dry:
        complain(f"to start it: mulligan run {one.name}@{one.version}{where(home)}")


def _text(file: Path) -> tuple[str, Path]:
    """What is published, and the name of its file."""
    if (python := formats.as_python_file(file)) is not None:
        return formats.convert(file).text, Path(python.path.name).with_suffix(".yaml")
    data = read_file(file)
    try:
        return data.decode("utf-8"), file
    except UnicodeDecodeError:
        raise UsageRefused(f"'{file}' is not UTF-8", hint="a published workflow is a text") from None


def list_workflows(
    name: Annotated[str | None, Argument("NAME", "List the versions of this workflow, or print NAME@3.")] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the published workflows of a store, or the versions of one; NAME@3 prints the text of version 3."""
    with service_at(home) as service:
        reference = published_reference(name) if name is not None else None
        if reference is not None:
            found = service.catalogue.workflow(*reference)
            if as_json:
                show_result(found)
            else:
                show_bytes((found.text or "").encode("utf-8", "surrogatepass"))
            return
        rows = _all(service, name)
    if as_json:
        show_json({"workflows": to_json(rows), "next": None})
    elif not rows:
        complain(f"no workflow is published; to publish one: mulligan publish FILE{where(home)}")
    else:
        now = datetime.now(UTC)
        show_table(("WORKFLOW", "VERSION", "FORMAT", "PUBLISHED", "BY", "NOTE"), [_row(one, now) for one in rows])


def _all(service: Service, name: str | None) -> list[PublishedWorkflow]:
    """All pages."""
    rows: list[PublishedWorkflow] = []
    position: str | None = ""
    while position is not None:
        if name is None:
            page = service.catalogue.workflows(after=position, limit=PAGE)
        else:
            page = service.catalogue.versions(name, before=int(position) if position else None, limit=PAGE)
        rows += page.workflows
        position = page.next
    return rows


def _row(one: PublishedWorkflow, now: datetime) -> tuple[str, ...]:
    published = f"{age(one.published_at, now)} ago"
    note = cut(one.note, NOTE_CHARS_MAX)
    return one.name, str(one.version).rjust(len("VERSION")), one.format, published, one.published_by, note
