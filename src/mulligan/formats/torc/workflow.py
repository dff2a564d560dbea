"""A whole file of Torc's: its parts, put together as the tree of a workflow of ours."""

from __future__ import annotations

from typing import Any

from mulligan.formats.torc import actions, environment, handlers, requirements
from mulligan.formats.torc.cluster import kept
from mulligan.formats.torc.commands import add_named, refuse_valueless, shell_text
from mulligan.formats.torc.expansion import Expansion
from mulligan.formats.torc.jobs import Job, link, read_jobs
from mulligan.formats.torc.matching import Known
from mulligan.formats.torc.names import Names
from mulligan.formats.torc.needs import Groups, Writers, needs, reads
from mulligan.formats.torc.records import WORKFLOW
from mulligan.formats.torc.things import Thing, read_files, read_user_data
from mulligan.formats.translation import Translation, made, mapping, scalar
from mulligan.language.nodes import Mapping, Node, Sequence
from mulligan.language.shapes import Fields


class Torc:
    """A file of Torc's that was read, and the parts of ours that grow from it.

    `environment` and `actions` add to it: to `defaults`, to the entries and needs of jobs, and steps of their own
    before and after those of the jobs.
    """

    def __init__(self, form: Fields, translation: Translation) -> None:
        self.form = form
        self.translation = translation
        self.source = translation.source
        self.names = Names.of_steps()
        expansion = Expansion(_mapping(form, "parameters"), translation)
        files, user_data = read_files(form, expansion), read_user_data(form, expansion)
        jobs = read_jobs(form, self.names, expansion)
        self.files = Known("file", files, self.source, is_whole="file" not in expansion.broken)
        self.user_data = Known("user data", user_data, self.source, is_whole="user data" not in expansion.broken)
        self.jobs = Known("job", jobs, self.source, is_whole="job" not in expansion.broken)
        self.defaults: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        self.before: list[Mapping] = []
        self.after: list[Mapping] = []

    def link(self) -> None:
        """Find what the jobs name: each other, files, user data."""
        for job in self.jobs.things.values():
            add_named(job, self.files, self.user_data)
        link(self.jobs, self.files, self.user_data)
        refuse_valueless(self.jobs, self.source)
        self._warn_of_written_user_data()

    def _warn_of_written_user_data(self) -> None:
        written = next((thing for thing in self.user_data.things.values() if thing.writers), None)
        if written is not None:
            job = written.writers[0]
            message = f"nobody can write user data here: that '{job.name}' writes '{written.name}' says only who waits"
            hint = "let the job write a file, and those that wait read it"
            at = job.form.node.get("output_user_data") or job.at("output_user_data_regexes")
            self.translation.warn("user_data", message, at, hint=hint)


def translate(root: Node, translation: Translation) -> Mapping:
    """The tree of a file of Torc's as the tree of one of ours."""
    form: Fields = WORKFLOW.read(root, "the workflow", translation.source)
    jobs = form.get("jobs")
    if isinstance(jobs, Sequence) and not jobs.items:
        raise translation.source.refuse("type", "'jobs' is an empty list", jobs, hint="add '- name: NAME'")
    torc = Torc(form, translation)
    torc.link()
    actions.add(torc)
    environment.add(torc)
    return _tree(torc)


def _tree(torc: Torc) -> Mapping:
    form, root = torc.form, torc.form.node
    known = handlers.read_handlers(form, torc.translation)
    entries = {
        "name": root.get("name"),
        "description": _described(form),
        "inputs": torc.inputs or None,
        "defaults": torc.defaults or None,
        "retry_policies": _section([(each.key, each.form.at("name"), each.policy) for each in known.values()], root),
        "files": _section(_files(torc), root),
        "steps": made(_steps(torc, known), root.get("jobs") or root),
        "x-torc": kept(torc.form, torc.jobs.things.values(), torc.translation),
    }
    return mapping(entries, root)


def _described(form: Fields) -> Node | None:
    text = form.get("description")
    return form.at("description") if text and text.strip() else None


def _files(torc: Torc) -> list[tuple[str, Node, Node | None]]:
    return [(file.key, file.name_node, scalar(file.text, file.node)) for file in torc.files.things.values()]


def _section(named: list[tuple[str, Node, Node | None]], at: Node) -> Mapping | None:
    """A mapping of names, each where it stands in the file."""
    section = Mapping(at.line, at.column)
    for name, name_at, value in named:
        if value is not None:
            section.entries[name] = (scalar(name, name_at), value)
    return section if section.entries else None


def _steps(torc: Torc, known: dict[str, handlers.Handler]) -> list[Mapping]:
    asked = requirements.read_requirements(torc.form, torc.translation)
    ordered = requirements.order(list(torc.jobs.things.values()), asked, torc.form.get("jobs_sort_method"))
    making = _Making(torc, known, asked)
    return [*torc.before, *(making.step(job) for job in ordered), *torc.after]


class _Making:
    """Makes the step of each job."""

    def __init__(
        self, torc: Torc, known: dict[str, handlers.Handler], asked: dict[str, requirements.Requirements]
    ) -> None:
        self._torc = torc
        self._handlers = known
        self._requirements = asked
        self._groups = Groups(torc.names.taken)
        self._writers = Writers()
        self._may_park = bool(torc.form.get("use_pending_failed"))

    def step(self, job: Job) -> Mapping:
        named, _ = reads(job)
        entries: dict[str, Any] = {
            "step": scalar(job.step, job.name_node),
            "shell": shell_text(job),
            "needs": needs(job, self._groups, self._writers) or None,
            "reads": _keys(named, job.at("input_files")),
            "writes": _keys([thing for things in job.outputs for thing in things], job.at("output_files")),
            "triage": True if self._may_park else None,
        }
        with self._torc.source.noting:
            found = requirements.of_job(job, self._requirements, self._torc.source)
            entries["resources"] = found.resources() if found else None
        with self._torc.source.noting:
            entries["retry"] = handlers.of_job(job, self._handlers, self._torc.translation)
        return mapping({**entries, **job.entries}, job.node)


def _keys(files: list[Thing], at: Node) -> Any:
    return made([file.key for file in dict.fromkeys(files)], at) if files else None


def _mapping(form: Fields, key: str) -> Mapping | None:
    node = form.at(key) if form.get(key) is not None else None
    return node if isinstance(node, Mapping) else None
