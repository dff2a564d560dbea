"""Settings for a cluster or for Torc's server: profiles of pilots, and what is kept in the file without effect."""

from __future__ import annotations

from typing import Any

from mulligan.formats.torc.profiles import SlurmProfiles
from mulligan.formats.torc.reading import TorcFile
from mulligan.formats.torc.records import MONITOR
from mulligan.formats.translation import Translation, made, mapping
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Refusal, Source, describe, shorten
from mulligan.language.text.suggestions import did_you_mean, quote_list

_KEPT_KEYS = (
    "user",
    "project",
    "metadata",
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
    words = [*_KEPT_KEYS, *(word for word in form.values if word.startswith(_COMPUTE_NODE_PREFIX))]
    found: dict[str, Any] = {word: form.at(word) for word in words if form.get(word) is not None}
    _warn_of_cluster_keys(found, form, translation)
    if torc.kept_user_data:
        found["user_data"] = made(torc.kept_user_data, form.at("user_data"))
    if torc.kept_actions:
        found["actions"] = made([action.node for action in torc.kept_actions], form.at("actions"))
    return mapping(found, form.node) if found else None


def _warn_of_cluster_keys(found: dict[str, Any], form: Fields, translation: Translation) -> None:
    words = [word for word in found if word.startswith(_COMPUTE_NODE_PREFIX)]
    if words:
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


def _check_defaults(form: Fields, source: Source) -> None:
    for word in form.get("slurm_defaults") or {}:
        if word in _SET_BY_TORC:
            node = form.at("slurm_defaults")
            assert isinstance(node, Mapping)
            message = f"'{word}' is set by each scheduler and is not allowed in 'slurm_defaults'"
            source.note(source.refuse("slurm", message, node.key(word)))


def read_profiles(torc: TorcFile) -> SlurmProfiles:
    """The profiles of the file. Names of schedulers that there are not are noted, once per node."""
    profiles = SlurmProfiles(torc)
    _check_defaults(torc.form, torc.source)
    for action in torc.kept_actions:
        if action["scheduler"] in profiles.names:
            profiles.note_allocations(action)
        else:
            torc.source.note(_refuse_scheduler(action["scheduler"], action.at("scheduler"), profiles, torc.source))
    noted: set[int] = set()
    for job in torc.jobs.by_name.values():
        name, node = job.texts.get("scheduler"), job.at("scheduler")
        if name is not None and name not in profiles.names and id(node) not in noted:
            noted.add(id(node))
            torc.source.note(_refuse_scheduler(name, node, profiles, torc.source))
    return profiles


def _refuse_scheduler(name: str, node: Node, profiles: SlurmProfiles, source: Source) -> Refusal:
    hint = did_you_mean(name, profiles.names) or "declare it under 'slurm_schedulers'"
    return source.refuse("unknown_scheduler", f"there is no scheduler '{name}'", node, hint=hint)
