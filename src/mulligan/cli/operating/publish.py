"""`mulligan publish` and `mulligan workflows`: the catalogue of a store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from mulligan.cli.output.tables import age, cut, show_table
from mulligan.cli.output.terminal import complain, show, show_bytes, show_json, show_result, show_warnings
from mulligan.cli.words.options import AsJson, By, HomeFolder, System, pairs, service_at, where
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.catalogue.catalogue import PublishedWorkflow
from mulligan.service.server.catalogue.texts import published_reference
from mulligan.service.server.publishing.parts import Publishable, read_publishable
from mulligan.service.service import Service

NOTE_CHARS_MAX = 60
PAGE = 1000


def publish(
    file: Annotated[Path, Argument("FILE", "A workflow file, or a Python file: sales.py or sales.py:nightly.")],
    name: Annotated[str | None, Option("NAME", "The name to publish it under (default: that of the workflow).")] = None,
    note: Annotated[str, Option("TEXT", "Why it is published, which is recorded.")] = "",
    label: Annotated[
        list[str] | None, Option("KEY=VALUE", "A label of the version and of its runs (repeatable).")
    ] = None,
    include: Annotated[
        list[str] | None, Option("PATTERN", "Files that its steps need, such as 'data/*.csv' (repeatable).")
    ] = None,
    system: System = None,
    is_dry: Annotated[bool, Flag("List the files that would be published, and stop.", "--dry-run")] = False,
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Publish a workflow in the catalogue of a store, from which servers and schedules start it.

    With its file goes what it needs of its project: workflows that it calls, modules of the project that are imported,
    files that steps declare to read, and those of --include. Nothing outside the project, nothing that .gitignore
    names, and nothing that looks like a secret. The project is in the folder with a mulligan.toml, or in this one.

    A version never changes; the same files again are the same version. Its `schedules` are in force from now on. A
    Python file is run here to build its workflow.
    """
    with service_at(home, by) as service:
        found = read_publishable(file, include=include or (), format=system)
        done = service.catalogue.publish_files(
            found, name=name or "", note=note, labels=pairs(label, "label", "--label name=value"), dry_run=is_dry
        )
    if as_json:
        show_result(done)
        return
    show_warnings(done.warnings)
    one = done.workflow
    if is_dry:
        show_files(found)
    if not done.is_new:
        what = "these files" if one.files else "this text"
        show(f"'{one.name}' has {what} already, as version {one.version}")
    else:
        show(f"{'would publish' if is_dry else 'published'} '{one.name}' as version {one.version}")
    if done.schedules:
        show(f"schedules: {', '.join(done.schedules)}")
    if done.removed_schedules:
        show(f"removed schedules: {', '.join(done.removed_schedules)}")
    if done.is_new and not is_dry:
        complain(f"to start it: mulligan run {one.name}@{one.version}{where(home)}")


def show_files(found: Publishable) -> None:
    """The files that go with a workflow: names, sizes, and why."""
    rows = [(one.file.path, format_size(one.file.size), one.why) for one in found.files]
    show_table(("FILE", "SIZE", "WHY"), rows)
    size = sum(one.file.size for one in found.files)
    show(f"{pluralize(len(rows), 'file')}, {format_size(size)}")


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
