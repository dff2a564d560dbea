"""Jobs: each as many as its parameters say, with what it reads, what it writes and whom it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mulligan.formats.names import Names
from mulligan.formats.torc.expansion import Expanded, Expansion
from mulligan.formats.torc.job import Job, Thing, Wait
from mulligan.formats.torc.matching import Known
from mulligan.formats.torc.records import JOB
from mulligan.language.shapes import Fields

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
    """The jobs by their names, in the order of the file."""
    found: dict[str, Expanded] = {}
    for form in expansion.forms(workflow, "jobs", JOB, "job"):
        with expansion.translation.source.noting:
            found.update({each.name: each for each in expansion.expanded(form, "job", TEXT_KEYS, LIST_KEYS)})
    steps = names.fit_all(found)
    return {name: Job(number, steps[name], made) for number, (name, made) in enumerate(found.items(), 1)}


def link(jobs: Known[Job], files: Known[Thing], user_data: Known[Thing]) -> None:
    """Say of each job whom it depends on and what it reads and writes, and of each thing who writes it."""
    for job in jobs.things.values():
        job.waits = [*_waits(job, jobs)]
        job.inputs += _found(job, files, "input_files", "input_file_regexes")
        job.user_data += _found(job, user_data, "input_user_data", "input_user_data_regexes")
        job.outputs += _found(job, files, "output_files", "output_file_regexes")
        written = [*job.outputs, *_found(job, user_data, "output_user_data", "output_user_data_regexes")]
        for thing in dict.fromkeys(thing for things in written for thing in things):
            thing.writers.append(job)


def _waits(job: Job, known: Known[Job]) -> Iterator[Wait]:
    for key, find in (("depends_on", known.named), ("depends_on_regexes", known.matching)):
        for text, node in job.lists.get(key, ()):
            others = _others(find(text, node), job)
            if others:
                yield Wait(others, node)


def _others(jobs: tuple[Job, ...], job: Job) -> tuple[Job, ...]:
    """The jobs without this one: an expression may match the job that has it, and nobody waits for himself."""
    return tuple(each for each in jobs if each is not job) if job in jobs else jobs


def _found(job: Job, known: Known[Any], names: str, patterns: str) -> Iterator[tuple[Any, ...]]:
    for text, node in job.lists.get(names, ()):
        yield known.named(text, node)
    for text, node in job.lists.get(patterns, ()):
        yield known.matching(text, node)
