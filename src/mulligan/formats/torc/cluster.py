"""Settings for a cluster or for Torc's server: kept in the file, without effect on one machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mulligan.formats.torc.jobs import Job
from mulligan.formats.torc.reading import TorcFile
from mulligan.formats.torc.records import MONITOR, SCHEDULER, entries_of
from mulligan.formats.translation import Translation, made, mapping
from mulligan.language.nodes import Mapping, Node, Refusal, Scalar, Source, describe, shorten
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import did_you_mean, quote_list

_KEPT_KEYS = (
    "user",
    "project",
    "metadata",
    "slurm_schedulers",
    "slurm_defaults",
    "resource_monitor",
    "jobs_sort_method",
)
_COMPUTE_NODE_PREFIX = "compute_node_"
# Torc sets these itself, from the scheduler and the job.
_SET_BY_TORC = ("partition", "nodes", "walltime", "time", "mem", "gres", "name", "job-name")


def cluster_settings(torc: TorcFile) -> Mapping | None:
    """The settings that our file keeps under `x-torc`, as written."""
    form, translation = torc.form, torc.translation
    _check_monitor(form, translation)
    schedulers = _schedulers(form, translation.source)
    _check_defaults(form, translation.source)
    of_jobs = _schedulers_of(torc.jobs.by_name.values(), schedulers, translation.source)
    words = [*_KEPT_KEYS, *(word for word in form.values if word.startswith(_COMPUTE_NODE_PREFIX))]
    found: dict[str, Any] = {word: form.at(word) for word in words if form.get(word) is not None}
    _warn_of_cluster_keys(found, form, translation)
    _check_actions(torc.kept_actions, schedulers, translation.source)
    if of_jobs:
        found["schedulers"] = made(of_jobs, form.node)
    if torc.kept_user_data:
        found["user_data"] = made(torc.kept_user_data, form.at("user_data"))
    if torc.kept_actions:
        found["actions"] = made(torc.kept_actions, form.at("actions"))
    return mapping(found, form.node) if found else None


def _warn_of_cluster_keys(found: dict[str, Any], form: Fields, translation: Translation) -> None:
    slurm = [word for word in found if word.startswith("slurm_")]
    nodes = [word for word in found if word.startswith(_COMPUTE_NODE_PREFIX)]
    for words in filter(None, (slurm, nodes)):
        verb = "are" if len(words) > 1 else "is"
        message = f"{quote_list(words, 'and')} {verb} for a cluster: kept but not used"
        translation.warn("cluster", message, form.key(words[0]))


def _check_monitor(form: Fields, translation: Translation) -> None:
    """Warn of unknown keys, which Torc accepts and ignores."""
    node: Node | None = form.get("resource_monitor")
    if node is None:
        return
    if not isinstance(node, Mapping):
        message = f"'resource_monitor' is {describe(node)}, a mapping is expected"
        raise translation.source.refuse("type", message, node)
    known = Mapping(node.line, node.column)
    for word, (key, value) in node.entries.items():
        if word in MONITOR.keys:
            known.entries[word] = (key, value)
        else:
            hint = did_you_mean(word, MONITOR.keys)
            message = f"'{shorten(word)}' in 'resource_monitor' has no effect"
            translation.warn("unknown_key", message, key, hint=hint)
    MONITOR.read(known, "'resource_monitor'", translation.source)


def _schedulers(form: Fields, source: Source) -> set[str]:
    found: set[str] = set()
    for item in entries_of(form, "slurm_schedulers"):
        with source.noting:
            scheduler: Fields = SCHEDULER.read(item, "a slurm scheduler", source)
            name = scheduler.get("name")
            if name in found:
                raise source.refuse("duplicate_name", f"there are two schedulers '{name}'", scheduler.at("name"))
            found |= {name} - {None}
    return found


def _check_defaults(form: Fields, source: Source) -> None:
    for word in form.get("slurm_defaults") or {}:
        if word in _SET_BY_TORC:
            node = form.at("slurm_defaults")
            assert isinstance(node, Mapping)
            message = f"'{word}' is set by each scheduler and is not allowed in 'slurm_defaults'"
            source.note(source.refuse("slurm", message, node.key(word)))


def _check_actions(actions: list[Node], schedulers: set[str], source: Source) -> None:
    for action in actions:
        node = action.get("scheduler") if isinstance(action, Mapping) else None
        if isinstance(node, Scalar) and node.text not in schedulers:
            source.note(_refuse_scheduler(node.text, node, schedulers, source))


def _schedulers_of(jobs: Iterable[Job], schedulers: set[str], source: Source) -> dict[str, Node]:
    """The scheduler of each step. An unknown scheduler is noted once per node."""
    noted: set[int] = set()
    found: dict[str, Node] = {}
    for job in jobs:
        name, node = job.texts.get("scheduler"), job.at("scheduler")
        if name in schedulers:
            found[job.step] = made(name, node)
        elif name is not None and id(node) not in noted:
            noted.add(id(node))
            source.note(_refuse_scheduler(name, node, schedulers, source))
    return found


def _refuse_scheduler(name: str, node: Node, schedulers: set[str], source: Source) -> Refusal:
    hint = did_you_mean(name, schedulers) or "declare it under 'slurm_schedulers'"
    return source.refuse("unknown_scheduler", f"there is no scheduler '{name}'", node, hint=hint)
