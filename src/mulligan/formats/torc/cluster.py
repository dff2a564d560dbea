"""Settings for a cluster or for Torc's server: profiles of pilots, and what is kept in the file without effect."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from mulligan.core.model.clusters.slurm_profile import DEFAULT_PROFILE
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.formats.torc.reading import TorcFile
from mulligan.formats.torc.records import MONITOR, SCHEDULER, entries_of
from mulligan.formats.translation import made, mapping, only, renewed, scalar
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.readers.slurm_profiles import OWN_OPTIONS
from mulligan.language.text.nodes import Mapping, Node, Refusal, Source, describe, plain, shorten
from mulligan.language.text.suggestions import did_you_mean, quote_list

_WALLTIME_DEFAULT = "01:00:00"
_NAME_CHARS_MAX = 40
# The forms of sbatch: minutes, minutes:seconds, hours:minutes:seconds, and those with days before them.
_TIME = lazy_regex(r"(?:(\d{1,4})-(\d{1,3})(?::(\d{1,2})(?::(\d{1,2}))?)?)|(\d{1,6})(?::(\d{1,2})(?::(\d{1,2}))?)?")
_SIZE = lazy_regex(r"(\d{1,12})\s*([kmgtKMGT]?)[iI]?[bB]?")
_UNITS = {"k": "KiB", "": "MiB", "m": "MiB", "g": "GiB", "t": "TiB"}
_GPUS = lazy_regex(r"gpu(?::[A-Za-z][\w.-]*)?:(\d{1,3})")
# Keys of a profile that `slurm_defaults` may hold for all of them.
_SHARED_KEYS = ("account", "qos", "constraint")


class SlurmProfiles:
    """The profiles of a file, by the names of their schedulers."""

    def __init__(self, torc: TorcFile) -> None:
        self._torc = torc
        # The profile of each scheduler, and what it says.
        self.names: dict[str, str] = {}
        self._entries: dict[str, tuple[Node, dict[str, Any]]] = {}
        defaults: Mapping | None = torc.form.at("slurm_defaults") if torc.form.get("slurm_defaults") else None  # type: ignore[assignment]
        self._defaults = {} if defaults is None else {word: plain(node) for word, (_, node) in defaults.entries.items()}
        for item in entries_of(torc.form, "slurm_schedulers"):
            with torc.source.noting:
                self._add(SCHEDULER.read(item, "a slurm scheduler", torc.source))

    def _add(self, form: Fields) -> None:
        name: str | None = form.get("name")
        if name in self.names:
            raise self._torc.source.refuse("duplicate_name", f"there are two schedulers '{name}'", form.at("name"))
        if "account" not in form:
            # That it is missing is noted.
            self.names |= {} if name is None else {name: name}
            return
        if name is None:
            message = "a slurm scheduler without a name cannot be used: no profile is made of it"
            self._torc.source.warn("cluster", message, form.node, hint="add 'name: …'")
            return
        known = self.names[name] = self._free_name(name)
        self._entries[known] = (form.at("name"), self._entry(form, known))

    def _free_name(self, name: str) -> str:
        """The name of the profile: that of the scheduler, without the characters that a profile may not have."""
        fitted = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:_NAME_CHARS_MAX] or "scheduler"
        found, number = fitted, 2
        while found in self._entries:
            found, number = f"{fitted[: _NAME_CHARS_MAX - 4]}-{number}", number + 1
        return found

    def _entry(self, form: Fields, name: str) -> dict[str, Any]:
        options = [*self._default_options(form), *self._own_options(form)]
        shared = {key: self._defaults.get(key) for key in _SHARED_KEYS}
        given = {key: form.get(key) for key in ("account", "partition", "qos")}
        gres = str(form.get("gres") or "")
        gpus = _GPUS.fullmatch(gres)
        return {
            **{key: str(value) for key, value in shared.items() if value},
            **{key: value for key, value in given.items() if value},
            "walltime": self._walltime(form),
            "nodes": form.get("nodes") if (form.get("nodes") or 1) > 1 else None,
            "memory": _memory(form),
            "gpus": int(gpus[1]) if gpus else None,
            "labels": [name],
            "options": options or None,
        }

    def _walltime(self, form: Fields) -> str | None:
        text = str(form.get("walltime") or _WALLTIME_DEFAULT).strip()
        seconds = _seconds(text)
        if seconds is None or seconds < 60:
            message = f"'walltime' is '{text}', which is not a time of Slurm of at least a minute: it is not used"
            self._torc.source.warn("cluster", message, form.at("walltime"), hint="write it like 04:00:00")
            return None
        hours, rest = divmod(seconds, 3600)
        days, hours = divmod(hours, 24) if hours > 99 else (0, hours)
        written = f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
        return f"{days}-{written}" if days else written

    def _own_options(self, form: Fields) -> Iterator[str]:
        gres = str(form.get("gres") or "")
        if gres and not re.fullmatch(r"gpu:\d{1,3}", gres):
            yield f"--gres={gres}"
        if form.get("mem") and _memory(form) is None:
            yield f"--mem={form['mem']}"
        for key, option in (("ntasks_per_node", "ntasks-per-node"), ("tmp", "tmp")):
            if form.get(key):
                yield f"--{option}={form[key]}"
        if form.get("extra"):
            yield from self._usable(_split(form["extra"]), form.at("extra"))

    def _default_options(self, form: Fields) -> Iterator[str]:
        """The options of all schedulers. Those that the scheduler has itself come later, so that they count."""
        node = self._torc.form.node.get("slurm_defaults")
        others = {word: value for word, value in self._defaults.items() if word not in _SHARED_KEYS}
        for word, value in others.items():
            if value is not False and value is not None:
                option = f"--{word.replace('_', '-')}"
                yield from self._usable([option if value is True else f"{option}={value}"], node or form.node)

    def _usable(self, options: list[str], node: Node) -> Iterator[str]:
        """The options that a profile may have; the others with a warning, since a pilot sets them itself."""
        for option in options:
            name = option.partition("=")[0] if option.startswith("--") else option[:2]
            if name in OWN_OPTIONS or not option.startswith("-"):
                message = f"'{option}' cannot be an option of pilots: it is not used"
                self._torc.source.warn("cluster", message, node, hint=OWN_OPTIONS.get(name, ""))
            else:
                yield option

    # -- submissions ---------------------------------------------------------------------------------------------------

    def note_allocations(self, action: Fields) -> None:
        """An action that schedules nodes at the start: how many pilots `slurm submit` submits."""
        profile = self._entries.get(self.names.get(action["scheduler"], ""))
        if profile is None:
            return  # noted
        entry, count = profile[1], action.get("num_allocations")
        count = 1 if count is None else count
        if action.get("start_one_worker_per_node") and entry["nodes"]:
            # A worker on each node is a pilot on each: they start as nodes become free.
            count, entry["nodes"] = count * entry["nodes"], None
        if action["trigger_type"] == "on_workflow_start":
            entry["pilots"] = (entry.get("pilots") or 0) + count or None

    def section(self) -> Mapping | None:
        """The key `slurm`. Jobs that name no scheduler run on pilots like those of the first one, without its label."""
        if not self._entries:
            return None
        at = self._torc.form.at("slurm_schedulers")
        node, entry = next(iter(self._entries.values()))
        entries = {**self._entries}
        entries.setdefault(DEFAULT_PROFILE, (node, {**entry, "labels": None, "pilots": None}))
        return renewed({name: (scalar(name, node), made(entry, node)) for name, (node, entry) in entries.items()}, at)


def _memory(form: Fields) -> str | None:
    found = _SIZE.fullmatch(str(form.get("mem") or "").strip())
    return f"{found[1]}{_UNITS[found[2].lower()]}" if found and int(found[1]) else None


def _seconds(text: str) -> int | None:
    """The seconds of a time as sbatch takes it."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds, first, second, third = (int(part or 0) for part in found.groups())
    if found[1] is not None:
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    return first * 3600 + second * 60 + third if found[7] is not None else first * 60 + second


def _split(text: str) -> list[str]:
    """Options of a command line, each with its value in one text."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    found: list[str] = []
    for word in words:
        if word.startswith("-") or not found:
            found.append(word)
        else:
            last = found[-1]
            found[-1] = f"{last}={word}" if last.startswith("--") else f"{last}{word}"
    return found


# -- what the file keeps, and what it refers to ----------------------------------------------------------------------


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
    form = torc.form
    _check_monitor(form, torc.source)
    words = [*_KEPT_KEYS, *(word for word in form.values if word.startswith(_COMPUTE_NODE_PREFIX))]
    found: dict[str, Any] = {word: form.at(word) for word in words if form.get(word) is not None}
    if of_nodes := [word for word in found if word.startswith(_COMPUTE_NODE_PREFIX)]:
        verb = "are" if len(of_nodes) > 1 else "is"
        message = f"{quote_list(of_nodes, 'and')} {verb} for a cluster: kept but not used"
        torc.source.warn("cluster", message, form.key(of_nodes[0]))
    if torc.kept_user_data:
        found["user_data"] = made(torc.kept_user_data, form.at("user_data"))
    if torc.kept_actions:
        found["actions"] = made([action.node for action in torc.kept_actions], form.at("actions"))
    return mapping(found, form.node) if found else None


def _check_monitor(form: Fields, source: Source) -> None:
    """Warn of unknown keys, which Torc accepts and ignores."""
    node: Node | None = form.get("resource_monitor")
    if node is None:
        return
    if not isinstance(node, Mapping):
        message = f"'resource_monitor' is {describe(node)}, a mapping is expected"
        raise source.refuse("type", message, node)
    for word, (key, _) in node.entries.items():
        if word not in MONITOR.keys:
            message, hint = f"'{shorten(word)}' in 'resource_monitor' has no effect", did_you_mean(word, MONITOR.keys)
            source.warn("unknown_key", message, key, hint=hint)
    MONITOR.read(only(node, MONITOR.keys), "'resource_monitor'", source)


def _check_defaults(form: Fields, source: Source) -> None:
    node = form.node.get("slurm_defaults")
    for word in form.get("slurm_defaults") or ():
        if word in _SET_BY_TORC and isinstance(node, Mapping):
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
