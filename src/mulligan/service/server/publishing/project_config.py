"""`mulligan.toml`: what a project deploys. Workflows with their files, when they start, who hears of them, labels."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from mulligan.core.model.text.durations import parse_duration
from mulligan.core.model.text.formatting import error_reason
from mulligan.core.model.workflow import NoticeKind, NoticeRule
from mulligan.errors import InputInvalid
from mulligan.language.readers.notices import rules_problem
from mulligan.language.readers.schedules import is_schedule_name
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.runs.changes.preflight import check_labels
from mulligan.service.server.catalogue.texts import check_name, name_from
from mulligan.service.server.publishing.project_files import PROJECT_FILE
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.server.toml_positions import config_error, position, refuse_invalid, refuse_syntax

# Says on a version which deployment it is of. Nobody else sets it.
DEPLOYMENT_LABEL = "deployment"
CONFIG_BYTES_MAX = 1 << 20


class WorkflowSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[workflows.NAME]`: a workflow, under the name by which it is started."""

    # `sales.py:nightly`, below the folder of the project.
    file: Annotated[str, msgspec.Meta(min_length=1)]
    include: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class NoticeSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[notices]]`: who hears of which events of runs. Without `workflows`: of all that the project has."""

    on: tuple[NoticeKind, ...]
    to: tuple[str, ...]
    late_after: str | float | None = None
    workflows: tuple[str, ...] = ()


class ProjectConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of the file."""

    workflows: dict[str, WorkflowSection]
    # By default that of the folder.
    name: str = ""
    labels: dict[str, str] = {}
    # When a workflow of the project is started, always with its newest version.
    schedules: dict[str, ScheduleForm] = {}
    notices: tuple[NoticeSection, ...] = ()

    def labels_of(self, workflow: str) -> dict[str, str]:
        """The labels of its version and of its runs."""
        return {**self.labels, **self.workflows[workflow].labels, DEPLOYMENT_LABEL: self.name}

    def notices_of(self, workflow: str) -> tuple[NoticeRule, ...]:
        """The rules of the file for its runs."""
        chosen = (one for one in self.notices if not one.workflows or workflow in one.workflows)
        return tuple(NoticeRule(one.on, one.to, _seconds(one.late_after)) for one in chosen)

    def schedules_of(self, workflow: str) -> dict[str, ScheduleForm]:
        """The schedules of the file that start it, by name."""
        return {
            name: msgspec.structs.replace(one, inputs=msgspec.to_builtins(one.inputs))
            for name, one in self.schedules.items()
            if one.workflow == workflow
        }


# Where the keys of each table are listed, for suggestions.
_TABLES: Mapping[str, type[msgspec.Struct]] = {
    "workflows": WorkflowSection,
    "schedules": ScheduleForm,
    "notices": NoticeSection,
}


def read_project(folder: Path) -> ProjectConfig:
    """The configuration of the project in a folder. `LanguageError`, with the line, for what is wrong with it."""
    path = folder / PROJECT_FILE
    try:
        with open(path, "rb") as file:
            text = file.read(CONFIG_BYTES_MAX).decode("utf-8")
    except FileNotFoundError:
        raise config_error(
            str(path), "the file does not exist", hint="docs/how-to/deploy-a-project.md has one"
        ) from None
    except UnicodeDecodeError:
        raise config_error(str(path), "the file is not UTF-8") from None
    except OSError as error:
        raise config_error(str(path), f"the file cannot be read: {error_reason(error)}") from None
    return parse_project(text, str(path), folder.resolve().name)


def parse_project(text: str, file: str, folder: str) -> ProjectConfig:
    """The same of a text. `folder`: the name of its folder."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse_syntax(error, text, file) from None
    except RecursionError:
        raise config_error(file, "the values are nested too deeply") from None
    within: tuple[str, ...] = ()
    try:
        # One by one, since an error in a table of tables does not say in which one it is.
        for name, type_ in _TABLES.items():
            table = tree.get(name)
            for key, one in table.items() if isinstance(table, dict) else ():
                within = (name, key)
                msgspec.convert(one, type_)
        within = ()
        config = msgspec.convert(tree, ProjectConfig)
    except msgspec.ValidationError as error:
        raise refuse_invalid(error, text, file, within, _keys_at) from None
    if not config.workflows:
        raise config_error(file, "the project has no workflows", text, hint="add [workflows.NAME] with a 'file'")
    config = msgspec.structs.replace(config, name=config.name or name_from(folder))
    _check(config, text, file)
    return config


def _check(config: ProjectConfig, text: str, file: str) -> None:
    def refuse(path: list[str], message: str, hint: str = "") -> None:
        raise config_error(file, message, text, *position(text, path), hint=hint, length=len(path[-1]))

    try:
        check_name(config.name, "deployment")
        for name in config.workflows:
            check_name(name)
        for one in (config.labels, *(each.labels for each in config.workflows.values())):
            check_labels(one)
            if DEPLOYMENT_LABEL in one:
                raise InputInvalid(f"the label '{DEPLOYMENT_LABEL}' is that of the deployment", hint="use another one")
    except InputInvalid as error:
        raise config_error(file, error.message, text, hint=error.hint) from None
    for name, schedule in config.schedules.items():
        if schedule.workflow not in config.workflows:
            hint = did_you_mean(schedule.workflow, config.workflows)
            refuse(["schedules", name, "workflow"], f"'{schedule.workflow}' is not a workflow of the project", hint)
        if schedule.version is not None:
            refuse(["schedules", name, "version"], "a schedule of a project starts the newest version", "leave it out")
        if not is_schedule_name(name):
            refuse(["schedules", name], f"'{name}' cannot be the name of a schedule", "letters, digits, '_' and '-'")
    for rule in config.notices:
        if unknown := next((one for one in rule.workflows if one not in config.workflows), None):
            refuse(
                ["notices"], f"'{unknown}' is not a workflow of the project", did_you_mean(unknown, config.workflows)
            )
    try:
        rules = [NoticeRule(one.on, one.to, _seconds(one.late_after)) for one in config.notices]
    except ValueError as error:
        raise config_error(file, f"'late_after': {error}", text, hint="write it like 2h") from None
    if problem := rules_problem(rules):
        refuse(["notices"], problem)


def _seconds(text: str | float | None) -> float | None:
    return None if text is None else parse_duration(text)


def _keys_at(path: list[str]) -> set[str]:
    type_ = ProjectConfig if not path else _TABLES.get(path[0])
    return set(type_.__struct_fields__) if type_ is not None else set()
