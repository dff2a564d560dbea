"""A whole file of Torc's: its parts, put together as the tree of a workflow of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mulligan.formats.torc import actions, environment, handlers, requirements
from mulligan.formats.torc.cluster import kept
from mulligan.formats.torc.commands import shell_text
from mulligan.formats.torc.job import Job, Thing
from mulligan.formats.torc.needs import Groups, Links, Writers
from mulligan.formats.torc.reading import Torc
from mulligan.formats.torc.records import WORKFLOW
from mulligan.formats.translation import Translation, made, mapping, scalar
from mulligan.language.nodes import Mapping, Node, Refusal, Sequence, Source
from mulligan.language.shapes import Fields

Each = TypeVar("Each")


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
        "steps": _steps(torc, known),
        "end": torc.end,
        "x-torc": kept(torc),
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


def _steps(torc: Torc, known: dict[str, handlers.Handler]) -> Node:
    asked = requirements.read_requirements(torc.form, torc.translation)
    ordered = requirements.order(list(torc.jobs.things.values()), asked, torc.form.get("jobs_sort_method"))
    making = _Making(torc, known, asked)
    found = [*(making.step(job) for job in ordered), *torc.after]
    steps = made(found, torc.form.node.get("jobs") or torc.form.node)
    requirements.tell(asked, steps, torc.translation)
    return steps


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
        self._noted: set[tuple[int, str]] = set()

    def step(self, job: Job) -> Mapping:
        links = Links(job, self._groups, self._writers)
        entries: dict[str, Any] = {
            "step": scalar(job.step, job.name_node),
            "shell": shell_text(job),
            "needs": links.needs() or None,
            "reads": _keys(links.reads, job.at("input_files")),
            "writes": _keys([thing for things in job.outputs for thing in things], job.at("output_files")),
            "triage": True if self._may_park else None,
            "resources": self._of(requirements.of_job, job, self._requirements),
            "retry": self._of(handlers.of_job, job, self._handlers),
        }
        return mapping({**entries, **job.entries}, job.node)

    def _of(self, find: Callable[[Job, dict[str, Each], Source], Any], job: Job, known: dict[str, Each]) -> Any:
        """What a job names; None where it names nothing, or what is not there."""
        try:
            return find(job, known, self._torc.source)
        except Refusal as refusal:
            self._note(refusal, job)
            return None

    def _note(self, refusal: Refusal, job: Job) -> None:
        """What is wrong with a job of parameters is wrong with all that it stands for, and said once."""
        said = (id(job.node), refusal.problem.code)
        if said not in self._noted:
            self._noted.add(said)
            self._torc.source.note(refusal)


def _keys(files: list[Thing], at: Node) -> Any:
    return made([file.key for file in dict.fromkeys(files)], at) if files else None
