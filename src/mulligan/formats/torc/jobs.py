"""Jobs, the files and user data that they read and write, and the dependencies between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from mulligan.formats.names import Names
from mulligan.formats.torc.matching import NameIndex
from mulligan.formats.torc.parameters import ExpandedEntry, Expansion
from mulligan.formats.torc.records import FILE, JOB, USER_DATA
from mulligan.formats.translation import Translation
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Node, Scalar, plain, refuse_not_json

# -- what a job is ---------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class DataItem:
    """A file or a piece of user data, with the jobs that write it. `text` replaces a reference in commands."""

    name: str
    key: str
    text: str
    name_node: Scalar
    node: Node
    # User data without a value.
    is_empty: bool = False
    # The value of user data.
    value: Any = None
    # A command refers to it.
    is_in_command: bool = False
    writers: list[Job] = field(default_factory=list)


class Dependency(NamedTuple):
    """Jobs that another job declares in `depends_on`. Jobs with the same expression share one tuple."""

    jobs: tuple[Job, ...]
    at: Node


@dataclass(slots=True, eq=False)
class Job(ExpandedEntry):
    """A job that becomes a step."""

    # Torc numbers jobs from 1, in the order of the file.
    number: int = 0
    # The name of its step.
    step: str = ""
    declared: list[Dependency] = field(default_factory=list)
    # Files and user data, one tuple per name or expression.
    inputs: list[tuple[DataItem, ...]] = field(default_factory=list)
    user_data: list[tuple[DataItem, ...]] = field(default_factory=list)
    outputs: list[tuple[DataItem, ...]] = field(default_factory=list)
    # Further entries of `needs`, and further keys of the step.
    extra_needs: list[Any] = field(default_factory=list)
    entries: dict[str, Any] = field(default_factory=dict)

    @property
    def is_cancelled_on_failure(self) -> bool:
        """Whether the job is cancelled when a job that it depends on fails."""
        return self.form.get("cancel_on_blocking_job_failure") is not False

    def at(self, key: str) -> Node:
        """The node of a key or of its `_regexes` variant; the name of the job if it has neither."""
        node = self.form.node
        return node.get(key) or node.get(f"{key.removesuffix('s')}_regexes") or self.name_node

    def dependencies(self) -> Iterator[tuple[Job, ...]]:
        """All jobs that it waits for, declared or implied by what it reads, as tuples that may overlap."""
        yield from (wait.jobs for wait in self.declared)
        for items in (*self.inputs, *self.user_data):
            yield tuple(self.writers(items))

    def writers(self, items: Iterable[DataItem]) -> Iterator[Job]:
        """The jobs that write these, except the job itself."""
        return (job for job in dict.fromkeys(job for item in items for job in item.writers) if job is not self)


# -- files and user data ---------------------------------------------------------------------------------------------


def read_files(workflow: Fields, expansion: Expansion) -> dict[str, DataItem]:
    """The files by name, after parameters are expanded."""
    found = expansion.read_expanded(workflow, "files", FILE, "file", ExpandedEntry, ("path",))
    keys = Names.of_files().fit_all(found)
    return {
        name: DataItem(
            name=name,
            key=keys[name],
            text=each.texts.get("path", ""),
            name_node=each.name_node,
            node=each.form.node.get("path") or each.name_node,
        )
        for name, each in found.items()
    }


def read_user_data(workflow: Fields, expansion: Expansion) -> dict[str, DataItem]:
    """The user data by name. Data without a name cannot be used and is left out."""
    translation = expansion.translation
    found: dict[str, DataItem] = {}
    for form in expansion.read_entries(workflow, "user_data", USER_DATA, "user data"):
        name = form.get("name")
        if name is None:
            translation.warn("user_data", "user data without a name is ignored", form.node)
        elif expansion.is_new("user data", name, form.at("name")):
            found[name] = _user_data_item(name, form, translation)
    for name, key in Names.of_data().fit_all(found).items():
        found[name].key = key
    return found


def _user_data_item(name: str, form: Fields, translation: Translation) -> DataItem:
    data = form.get("data")
    name_node = form.at("name")
    assert isinstance(name_node, Scalar)
    if data is not None:
        refuse_not_json(data, translation.source)
    value = None if data is None else plain(data)
    text = msgspec.json.encode(value).decode()
    return DataItem(name, name, text, name_node, form.node, is_empty=value is None, value=value)


# -- jobs and dependencies -------------------------------------------------------------------------------------------


TEXT_KEYS = ("command", "invocation_script", "resource_requirements", "failure_handler", "scheduler")
LIST_KEYS = (
    "depends_on",
    "depends_on_regexes",
    *(
        f"{way}_{what}"
        for way in ("input", "output")
        for what in ("files", "file_regexes", "user_data", "user_data_regexes")
    ),
)


def read_jobs(workflow: Fields, names: Names, expansion: Expansion) -> dict[str, Job]:
    """The jobs by name, in the order of the file."""
    found = expansion.read_expanded(workflow, "jobs", JOB, "job", Job, TEXT_KEYS, LIST_KEYS)
    steps = names.fit_all(found)
    for number, job in enumerate(found.values(), 1):
        job.number, job.step = number, steps[job.name]
    return found


def link_jobs(jobs: NameIndex[Job], files: NameIndex[DataItem], user_data: NameIndex[DataItem]) -> None:
    """Resolve what each job depends on, reads and writes, and record the writers of each file and user data."""
    for job in jobs.by_name.values():
        job.declared = [*_declared_dependencies(job, jobs)]
        job.inputs += _find_sets(job, files, "input_files", "input_file_regexes")
        job.user_data += _find_sets(job, user_data, "input_user_data", "input_user_data_regexes")
        job.outputs += _find_sets(job, files, "output_files", "output_file_regexes")
        written = [*job.outputs, *_find_sets(job, user_data, "output_user_data", "output_user_data_regexes")]
        for item in dict.fromkeys(item for items in written for item in items):
            item.writers.append(job)


def _declared_dependencies(job: Job, known: NameIndex[Job]) -> Iterator[Dependency]:
    for key, find in (("depends_on", known.find), ("depends_on_regexes", known.find_matching)):
        for text, node in job.lists.get(key, ()):
            others = _without(find(text, node), job)
            if others:
                yield Dependency(others, node)


def _without(jobs: tuple[Job, ...], job: Job) -> tuple[Job, ...]:
    """The jobs without this one: an expression may match the job that has it, and a job does not wait for itself."""
    return tuple(each for each in jobs if each is not job) if job in jobs else jobs


def _find_sets(job: Job, known: NameIndex[Any], names: str, patterns: str) -> Iterator[tuple[Any, ...]]:
    for text, node in job.lists.get(names, ()):
        yield known.find(text, node)
    for text, node in job.lists.get(patterns, ()):
        yield known.find_matching(text, node)
