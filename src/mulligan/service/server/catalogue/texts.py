"""The text of a workflow that somebody sends: checked without reading any other file."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path, PurePath

import msgspec

from mulligan.core.model.workflow import Workflow, decode
from mulligan.errors import InputInvalid, LanguageError, NotFound
from mulligan.formats import (
    OURS,
    Converted,
    LoadResult,
    LocatedSteps,
    LocatedWorkflow,
    convert,
    examine,
    examine_located,
    examine_text,
)
from mulligan.language.published import finding_published
from mulligan.language.python.definitions import read_definition
from mulligan.service.authoring.workflow_files import Validation, describe
from mulligan.service.server.catalogue.text_reading import read_apart

NAME_CHARS_MAX = 100
# Of the name of a file.
FILE_CHARS_MAX = 200
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NAME_IN_WORDS = f"1 to {NAME_CHARS_MAX} letters, digits, '.', '_' and '-', beginning with a letter or a digit"
_YAML = (".yaml", ".yml", "")


class WorkflowText(msgspec.Struct, frozen=True):
    """A text, and how it is read."""

    text: str
    # Its file, for messages; the ending says in which syntax it is written.
    file: str
    # The system whose file it is; None: it is recognized.
    format: str | None = None
    # The workflows of the catalogue that it may call, as JSON, by what is written: `region@2`.
    published: tuple[tuple[str, bytes], ...] = ()
    # What was published with files: the workflow, as its publisher has read it from them. Then no text is read.
    definition: bytes = b""


def is_name(name: str) -> bool:
    return len(name) <= NAME_CHARS_MAX and NAME.fullmatch(name) is not None


def published_reference(word: str) -> tuple[str, int | None] | None:
    """The name and the version of `nightly@3`; None as the version of `nightly@latest`. None if it is neither."""
    name, sign, version = word.rpartition("@")
    if not sign or not is_name(name):
        return None
    if version == "latest":
        return name, None
    is_number = version.isascii() and version.isdigit() and len(version) < 10
    return (name, int(version)) if is_number and int(version) else None


def check_name(name: str, what: str = "workflow") -> str:
    """The name, if it can be a name in the catalogue."""
    if not is_name(name):
        raise InputInvalid(f"'{name[:NAME_CHARS_MAX]}' cannot be the name of a {what}", hint=NAME_IN_WORDS)
    return name


def name_from(text: str) -> str:
    """A name of the catalogue made of the name of a workflow or of a file."""
    found = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:NAME_CHARS_MAX]
    return check_name(found)


@read_apart
def read_text(given: WorkflowText) -> LoadResult:
    """The workflow in a text, and the warnings about it. `LanguageError` where it is refused.

    It names no other workflow file, and it is no Python: checking it would run it.
    """
    if given.definition:
        return LoadResult(decode(given.definition), ())
    refuse_python(given.file)
    with finding_published(partial(_published, given)):
        return examine(_file_name(given), named=given.format, text=given.text, is_alone=True)


def locate_steps(given: WorkflowText) -> LocatedSteps:
    """The same, with the line of each step."""
    if given.definition:
        return LocatedSteps(LoadResult(decode(given.definition), ()), {})
    refuse_python(given.file)
    with finding_published(partial(_published, given)):
        return examine_text(_file_name(given), given.text, named=given.format)


def examine_located_text(given: WorkflowText) -> LocatedWorkflow:
    """The same, with its tree."""
    if given.definition:
        return LocatedWorkflow(LoadResult(decode(given.definition), ()), {}, None, given.text)
    refuse_python(given.file)
    with finding_published(partial(_published, given)):
        return examine_located(_file_name(given), named=given.format, text=given.text)


def _published(given: WorkflowText, name: str, version: int) -> Workflow:
    found = dict(given.published).get(f"{name}@{version}")
    if found is None:
        raise NotFound(f"'{name}@{version}' is not published", hint="list what is: mulligan workflows")
    return decode(found)


@read_apart
def read_sent_definition(given: WorkflowText) -> Workflow:
    """The workflow that a publisher has read from files and sent, checked as the language does. `InputInvalid`."""
    workflow, _ = read_definition(given.definition)
    # Checked where schedules are.
    return msgspec.structs.replace(workflow, schedules=decode(given.definition).schedules)


def refuse_python(file: str) -> None:
    if PurePath(file.partition(":")[0]).suffix.lower() in (".py", ".pyw"):
        raise InputInvalid(
            f"'{file}' is a Python file, and a server takes none: reading it would run it",
            hint=f"publish what it builds: mulligan publish {file}",
        )


@read_apart
def validate_text(given: WorkflowText) -> Validation:
    """What a check of the text finds. A text with mistakes is an answer too."""
    try:
        examined = read_text(given)
    except LanguageError as refused:
        return Validation(False, given.file, problems=tuple(refused.problems), error=refused)
    return describe(given.file, examined)


@read_apart
def convert_text(given: WorkflowText) -> Converted:
    """The text of another system's file as one of ours."""
    refuse_python(given.file)
    return convert(_file_name(given), named=given.format, text=given.text, is_alone=True)


def format_of(workflow: Workflow, file: str) -> str:
    """How the text is read again: its system, and the ending of its file unless that is YAML."""
    suffix = PurePath(file).suffix.lower()
    return (workflow.origin or OURS) + ("" if suffix in _YAML else suffix)


def published_text(name: str, text: str, format: str) -> WorkflowText:
    """A text that was published as `format_of` said."""
    system, _, suffix = format.partition(".")
    return WorkflowText(text, f"{name}.{suffix or 'yaml'}", system or None)


def _file_name(given: WorkflowText) -> Path:
    """Only the name: a text is in no folder."""
    name = PurePath(given.file).name or "workflow.yaml"
    if not name.isprintable() or len(name) > FILE_CHARS_MAX:
        hint = f"write it like nightly.yaml, in one line of at most {FILE_CHARS_MAX} characters"
        raise InputInvalid("this is not the name of a file", hint=hint)
    return Path(name)
