"""A whole Torc file as a workflow: the steps of its jobs, and the environment that Torc gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mulligan.formats.torc import actions, handlers, requirements
from mulligan.formats.torc.cluster import SlurmProfiles, cluster_settings, read_profiles
from mulligan.formats.torc.commands import shell_text
from mulligan.formats.torc.jobs import Job
from mulligan.formats.torc.needs import StepLinks, StepPatterns, Writers
from mulligan.formats.torc.reading import TorcFile
from mulligan.formats.torc.records import WORKFLOW
from mulligan.formats.torc.sweeps import fold_sweeps, is_same
from mulligan.formats.translation import Translation, literal, made, mapping, renewed, scalar
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Refusal, Sequence, Source

# -- environment -----------------------------------------------------------------------------------------------------


# The input that replaces Torc's `--output-dir`.
OUTPUT_DIR = "output_dir"
_OUTPUT_DIR = f"${{inputs.{OUTPUT_DIR}}}"
_OUTPUT_DIR_INPUT = {
    "type": "string",
    "default": "output",
    "description": "folder for logs with Torc's file names",
}
_TORC_ENV = {
    "TORC_WORKFLOW_ID": "${run.id}",
    "TORC_RUN_ID": "${run.round}",
    # Torc numbers jobs by its database. All that matters is that the numbers are unique.
    "TORC_JOB_ID": "${step.number}",
    "TORC_JOB_NAME": "${step.name}",
    "TORC_ATTEMPT_ID": "${attempt}",
    "TORC_OUTPUT_DIR": _OUTPUT_DIR,
    # There is no server.
    "TORC_API_URL": "",
}
# Like `--output-dir`, the input may name any folder.
_LOG_STEM = (
    f"${{any_path(inputs.{OUTPUT_DIR})}}/job_stdio/job_wf${{run.id}}_j${{step.number}}_r${{run.round}}_a${{attempt}}"
)


def add_environment(torc: TorcFile) -> None:
    """Give every step Torc's environment variables, log names, and a shell that continues after a failed command."""
    torc.inputs[OUTPUT_DIR] = _OUTPUT_DIR_INPUT
    torc.defaults |= {
        "strict": False,
        "env": _TORC_ENV,
        "logs": {"stdout": f"{_LOG_STEM}.o", "stderr": f"{_LOG_STEM}.e"},
    }
    for job in torc.jobs.by_name.values():
        if job.name != job.step:
            job.entries["env"] = made({"TORC_JOB_NAME": literal(job.name)}, job.name_node)


# -- the workflow ----------------------------------------------------------------------------------------------------


Each = TypeVar("Each")


def translate(root: Node, translation: Translation) -> Mapping:
    """Translate the tree of a Torc file to the tree of a workflow file."""
    form: Fields = WORKFLOW.read(root, "the workflow", translation.source)
    torc = TorcFile(form, translation)
    torc.link()
    actions.add_actions(torc)
    add_environment(torc)
    root = _build_tree(torc)
    translation.fold = lambda: fold_sweeps(root, torc.jobs.by_name.values())
    translation.is_same = is_same
    return root


def _build_tree(torc: TorcFile) -> Mapping:
    form, root = torc.form, torc.form.node
    known = handlers.read_handlers(form, torc.translation)
    profiles, files = read_profiles(torc), torc.files.by_name.values()
    entries = {
        "name": root.get("name"),
        "description": root.get("description") if (form.get("description") or "").strip() else None,
        "inputs": torc.inputs or None,
        "defaults": torc.defaults or None,
        "retry_policies": _section([(each.key, each.form.at("name"), each.policy) for each in known.values()], root),
        "files": _section([(file.key, file.name_node, scalar(file.text, file.node)) for file in files], root),
        "data": _section([(key, item.name_node, made(item.value, item.node)) for key, item in torc.data.items()], root),
        # Torc does not ask which of several writers comes first.
        "unordered_writers": "warn" if any(len(file.writers) > 1 for file in files) else None,
        "slurm": profiles.section(),
        "steps": _steps(torc, known, profiles),
        "end": torc.end,
        "x-torc": cluster_settings(torc),
    }
    return mapping(entries, root)


def _section(named: list[tuple[str, Node, Node | None]], at: Node) -> Mapping | None:
    """A mapping of names, each at its position in the file."""
    entries = {name: (scalar(name, name_at), value) for name, name_at, value in named if value is not None}
    return renewed(entries, at) if entries else None


def _steps(torc: TorcFile, known: dict[str, handlers.Handler], profiles: SlurmProfiles) -> Node:
    asked = requirements.read_requirements(torc.form, torc.translation)
    ordered = requirements.sort_jobs(list(torc.jobs.by_name.values()), asked, torc.form.get("jobs_sort_method"))
    making = _StepBuilder(torc, known, asked, profiles, StepPatterns(torc.names.taken))
    at = torc.form.node.get("jobs") or torc.form.node
    found = [*(making.step(job) for job in ordered), *torc.after]
    if not found and isinstance(at, Sequence) and not at.items:
        # Torc runs a file without jobs; ours have at least one step.
        torc.source.warn("no_jobs", "the file has no jobs: a run of it does nothing", at)
        found.append(mapping({"step": torc.names.fit("no_jobs"), "shell": ":"}, at))
    steps = made(found, at)
    requirements.report_unused(asked, steps, torc.translation)
    return steps


@dataclass(eq=False)
class _StepBuilder:
    """Builds the steps of jobs."""

    _torc: TorcFile
    _handlers: dict[str, handlers.Handler]
    _requirements: dict[str, requirements.Requirements]
    _profiles: SlurmProfiles
    _groups: StepPatterns
    _writers: Writers = field(default_factory=Writers)
    _noted: set[tuple[int, str]] = field(default_factory=set)

    def step(self, job: Job) -> Mapping:
        links = StepLinks(job, self._groups, self._writers)
        writes = dict.fromkeys(file.key for files in job.outputs for file in files)
        entries: dict[str, Any] = {
            "step": scalar(job.step, job.name_node),
            "shell": shell_text(job),
            "needs": links.needs() or None,
            "reads": made([file.key for file in links.reads], job.at("input_files")) if links.reads else None,
            "writes": made(list(writes), job.at("output_files")) if writes else None,
            "triage": True if self._torc.form.get("use_pending_failed") else None,
            "resources": self._resources(job),
            "retry": self._resolve(handlers.retry_of, job, self._handlers),
        }
        return mapping({**entries, **job.entries}, job.form.node)

    def _resources(self, job: Job) -> dict[str, Any] | None:
        """What the job asks for; for a scheduler, the label of its pilots."""
        found: dict[str, Any] | None = self._resolve(requirements.resources_of, job, self._requirements)
        profile = self._profiles.names.get(job.texts.get("scheduler", ""))
        if profile is None:
            return found
        return {**(found or {}), "labels": made([profile], job.at("scheduler"))}

    def _resolve(self, find: Callable[[Job, dict[str, Each], Source], Any], job: Job, known: dict[str, Each]) -> Any:
        """Resolve a name in a job; None if it names nothing or the name is unknown."""
        try:
            return find(job, known, self._torc.source)
        except Refusal as refusal:
            # Note it once for all jobs that an entry expands to.
            problem = (id(job.form.node), refusal.problem.code)
            if problem not in self._noted:
                self._noted.add(problem)
                self._torc.source.note(refusal)
            return None
