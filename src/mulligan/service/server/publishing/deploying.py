"""Deploying a project: all that its mulligan.toml names, in one command that may be repeated and says what changed.

Schedules and notices of the file become part of the workflows, so that each version is published with its own in one
step. Nothing is published unless all workflows of the project can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import chdir
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from mulligan.core.model.schedule import Schedule
from mulligan.core.model.workflow import Workflow
from mulligan.errors import InputInvalid, LanguageError, MulliganError, Problem, Refused
from mulligan.ports.bundles import BundleFile
from mulligan.service.server.catalogue.catalogue import Catalogue, Publication, PublishedWorkflow, UnknownWorkflow
from mulligan.service.server.publishing.parts import Publishable, read_publishable, with_settings
from mulligan.service.server.publishing.project_config import DEPLOYMENT_LABEL, ProjectConfig, read_project
from mulligan.service.server.publishing.project_files import PROJECT_FILE
from mulligan.service.server.schedules.forms import read_schedule

_Schedules: TypeAlias = Mapping[str, Schedule]
Change = Literal["created", "changed", "unchanged", "removed"]
_PAGE = 500


class DeployedWorkflow(msgspec.Struct, frozen=True):
    """A workflow of a project, and what changed since its last version."""

    name: str
    version: int
    change: Change
    # Its files that differ: `+` new, `~` changed, `-` gone. And `steps`, `notices`, `labels` and other settings.
    files: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    # How many files it has, and their size.
    count: int = 0
    size: int = 0


class DeployedSchedule(msgspec.Struct, frozen=True):
    """A schedule of a project, by its name in the store: `nightly.night`."""

    name: str
    change: Change


class LeftWorkflow(msgspec.Struct, frozen=True):
    """A workflow that was deployed with this project and is no longer in it. What it has goes on."""

    name: str
    version: int
    schedules: tuple[str, ...] = ()


class Deployment(msgspec.Struct, frozen=True):
    """What came of deploying a project."""

    name: str
    workflows: tuple[DeployedWorkflow, ...]
    schedules: tuple[DeployedSchedule, ...]
    left: tuple[LeftWorkflow, ...]
    warnings: tuple[Problem, ...] = ()
    dry_run: bool = False

    @property
    def is_changed(self) -> bool:
        changes = [*(one.change for one in self.workflows), *(one.change for one in self.schedules)]
        return any(one != "unchanged" for one in changes)


class _Old(msgspec.Struct, frozen=True):
    """The newest version of a workflow before."""

    shown: PublishedWorkflow
    workflow: Workflow


def deploy(catalogue: Catalogue, folder: Path, now: datetime, *, note: str = "", dry_run: bool = False) -> Deployment:
    """Publish what the project in the folder names. `LanguageError` or `InputInvalid` before anything is published."""
    config = read_project(folder)
    with chdir(folder):
        read = {name: _read(config, name, now) for name in config.workflows}
    old = {name: _old(catalogue, name) for name in read}
    for name, before in old.items():
        _refuse_of_another(config, name, before)
    if not dry_run:
        # What one of them could be refused for is found before another one is published.
        for name, found in read.items():
            catalogue.send_files(found, config.labels_of(name))
            _publish(catalogue, config, name, found, note=note, dry_run=True)
    workflows: list[DeployedWorkflow] = []
    schedules: list[DeployedSchedule] = []
    for name, found in read.items():
        done = _publish(catalogue, config, name, found, note=note, dry_run=dry_run)
        before = old[name]
        workflows.append(_deployed(found, done.workflow, before, is_new=done.is_new))
        schedules += _schedule_changes(name, found.workflow.schedules, before.workflow.schedules if before else {})
    return Deployment(
        name=config.name,
        workflows=tuple(workflows),
        schedules=tuple(schedules),
        left=tuple(_left(catalogue, config)),
        warnings=tuple(one for found in read.values() for one in found.warnings),
        dry_run=dry_run,
    )


def _read(config: ProjectConfig, name: str, now: datetime) -> Publishable:
    section = config.workflows[name]
    try:
        found = read_publishable(Path(section.file), include=section.include, root=Path())
        schedules = dict(found.workflow.schedules)
        for key, form in config.schedules_of(name).items():
            if key in schedules:
                raise InputInvalid(
                    f"schedule '{key}' is in its file, too", hint=f"remove one of the two: {PROJECT_FILE}"
                )
            try:
                schedules[key] = read_schedule(form, now)
            except InputInvalid as error:
                raise InputInvalid(f"schedule '{key}': {error.message}", hint=error.hint) from None
    except LanguageError:
        raise
    except MulliganError as error:
        error.message = f"workflow '{name}': {error.message}"
        raise
    notify = (*found.workflow.notify, *config.notices_of(name))
    return with_settings(found, schedules=schedules, notify=notify, name=name)


def _publish(
    catalogue: Catalogue, config: ProjectConfig, name: str, found: Publishable, *, note: str, dry_run: bool
) -> Publication:
    labels = config.labels_of(name)
    return catalogue.publish_files(found, name=name, note=note, labels=labels, dry_run=dry_run, is_bundle=True)


def _old(catalogue: Catalogue, name: str) -> _Old | None:
    try:
        return _Old(catalogue.workflow(name), catalogue.load(name))
    except UnknownWorkflow:
        return None


def _refuse_of_another(config: ProjectConfig, name: str, before: _Old | None) -> None:
    other = before.shown.labels.get(DEPLOYMENT_LABEL, "") if before is not None else ""
    if other not in ("", config.name):
        raise Refused(
            f"'{name}' belongs to the deployment '{other}', and this one is '{config.name}'",
            hint=f"give the workflow another name in {PROJECT_FILE}, or the deployment this 'name'",
            workflow=name,
        )


def _deployed(found: Publishable, shown: PublishedWorkflow, before: _Old | None, *, is_new: bool) -> DeployedWorkflow:
    files = tuple(one.file for one in found.files)
    change: Change = "unchanged" if not is_new else "created" if before is None else "changed"
    is_changed = change == "changed" and before is not None
    return DeployedWorkflow(
        name=shown.name,
        version=shown.version,
        change=change,
        files=tuple(file_changes(before.shown.files, files)) if is_changed and before else (),
        settings=tuple(_setting_changes(before, found.workflow, shown)) if is_changed and before else (),
        count=len(files),
        size=sum(one.size for one in files),
    )


def file_changes(old: tuple[BundleFile, ...], new: tuple[BundleFile, ...]) -> Iterator[str]:
    """The files that differ between two versions, each with what has happened to it: `+`, `~` or `-`."""
    before, after = {one.path: one for one in old}, {one.path: one for one in new}
    for path in sorted(before.keys() | after.keys()):
        if path not in before:
            yield f"+ {path}"
        elif path not in after:
            yield f"- {path}"
        elif before[path] != after[path]:
            yield f"~ {path}"


def _setting_changes(before: _Old, new: Workflow, shown: PublishedWorkflow) -> Iterator[str]:
    old = before.workflow
    if _named(old.schedules, "") != _named(new.schedules, ""):
        yield "schedules"
    if old.notify != new.notify:
        yield "notices"
    if dict(before.shown.labels) != dict(shown.labels):
        yield "labels"
    same = {"schedules": {}, "notify": (), "labels": {}, "source": "", "name": "", "children": {}}
    if replace(old, **same) != replace(new, **same) or old.children.keys() != new.children.keys():
        yield "definition"


def _schedule_changes(name: str, new: _Schedules, old: _Schedules) -> Iterator[DeployedSchedule]:
    for key in sorted(new.keys() | old.keys()):
        change: Change = "removed"
        if key in new:
            is_same = key in old and _named(old, name)[key] == _named(new, name)[key]
            change = "created" if key not in old else "unchanged" if is_same else "changed"
        yield DeployedSchedule(f"{name}.{key}", change)


def _named(schedules: _Schedules, name: str) -> dict[str, Schedule]:
    """Those of a file name no workflow, and those of a form do."""
    return {key: replace(one, workflow=name) for key, one in schedules.items()}


def _left(catalogue: Catalogue, config: ProjectConfig) -> Iterator[LeftWorkflow]:
    after: str | None = ""
    while after is not None:
        page = catalogue.workflows(after=after, limit=_PAGE)
        for one in page.workflows:
            if one.labels.get(DEPLOYMENT_LABEL) == config.name and one.name not in config.workflows:
                schedules = tuple(sorted(f"{one.name}.{key}" for key in catalogue.load(one.name).schedules))
                yield LeftWorkflow(one.name, one.version, schedules)
        after = page.next
