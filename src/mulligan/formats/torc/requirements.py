"""Resource requirements: the `resources` of steps, and the order of jobs."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.text.durations import parse_duration
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.formats.torc.jobs import Job
from mulligan.formats.torc.records import REQUIREMENTS, RUNTIME_DEFAULT, entries_of
from mulligan.formats.translation import Translation, made
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Node, Scalar, Source, describe, plain
from mulligan.language.text.suggestions import did_you_mean

# Built into every Torc workflow: one processor, and memory without a limit.
DEFAULT = "default"
# A program cannot run with less memory, so a smaller number is not meant as a limit.
MEMORY_BYTES_MIN = 32 * 1024 * 1024
_MEMORY = lazy_regex(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)[iI]?[bB]?\s*")
# An exbibyte.
_MEMORY_MAX = 1 << 60
_UNITS = {"": "B", "k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}
_CPUS_MIN = 0.001


class Requirements:
    """One entry of `resource_requirements`."""

    def __init__(self, form: Fields, translation: Translation) -> None:
        self.form = form
        source = translation.source
        self.gpus: int = form.get("num_gpus") or 0
        self.memory_bytes = 0
        self.memory = ""
        self.runtime = 0.0
        self.is_used = False
        with source.noting:
            self.memory_bytes, self.memory = _memory(form.node.get("memory"), source)
        with source.noting:
            self.runtime = _runtime(form.node.get("runtime"), source)
        self._warn(translation)

    def _warn(self, translation: Translation) -> None:
        nodes: int = self.form.get("num_nodes") or 1
        if nodes > 1:
            message = f"'{self.form.get('name')}' asks for {nodes} nodes, but each of its steps runs on one machine"
            translation.warn("cluster", message, self.form.at("num_nodes"))
        if self.memory and self.memory_bytes < MEMORY_BYTES_MIN:
            message = (
                f"'{self.form.get('name')}' asks for {self.memory}, too little for any program: the limit is ignored"
            )
            hint = "memory is a hard limit here: write what the program needs"
            translation.warn("memory", message, self.form.at("memory"), hint=hint)
            self.memory = ""

    def resources(self) -> dict[str, Any]:
        """The step's `resources`, each at its position in the file."""
        form = self.form
        asked = {
            "cpus": ("num_cpus", form.get("num_cpus") or _CPUS_MIN),
            "memory": ("memory", self.memory or None),
            "gpus": ("num_gpus", self.gpus or None),
        }
        return {ours: made(value, form.node.get(key) or form.node) for ours, (key, value) in asked.items() if value}


def _memory(node: Node | None, source: Source) -> tuple[int, str]:
    """The size in bytes, and as our files write it."""
    if node is None:
        return 0, ""  # noted
    found = _MEMORY.fullmatch(node.text) if isinstance(node, Scalar) and node.value is not None else None
    if found is None:
        message = f"'memory' is {describe(node)}, a size such as 512m or 2g is expected"
        raise source.refuse("type", message, node)
    number, unit = found.group(1), found.group(2).lower()
    size = float(number) * 1024 ** ["", "k", "m", "g", "t"].index(unit)
    if size >= _MEMORY_MAX:
        raise source.refuse("type", f"'memory' is {describe(node)}, which is more than any machine has", node)
    return int(size), f"{number}{_UNITS[unit]}" if size else ""


def _runtime(node: Node | None, source: Source) -> float:
    """The runtime in seconds."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return parse_duration(RUNTIME_DEFAULT)
    try:
        if isinstance(node, Scalar) and isinstance(node.value, str) and node.text[:1] == "P":
            return parse_duration(node.text)
    except ValueError:
        pass
    raise source.refuse("type", f"'runtime' is {describe(node)}, a duration such as PT30M or P0DT1H is expected", node)


def read_requirements(workflow: Fields, translation: Translation) -> dict[str, Requirements]:
    """All resource requirements by name."""
    source = translation.source
    found: dict[str, Requirements] = {}
    for item in entries_of(workflow, "resource_requirements"):
        with source.noting:
            form: Fields = REQUIREMENTS.read(item, "an entry of 'resource_requirements'", source)
            if "name" in form:
                _add(form, found, translation)
    return found


def _add(form: Fields, found: dict[str, Requirements], translation: Translation) -> None:
    name, node, source = form["name"], form.at("name"), translation.source
    if name == DEFAULT:
        message = f"'{DEFAULT}' is built in, for jobs without requirements, and cannot be declared"
        raise source.refuse("duplicate_name", message, node, hint="use another name")
    if name in found:
        line = source.number(found[name].form.at("name"))
        message = f"there are two resource requirements '{name}': first in line {line}"
        raise source.refuse("duplicate_name", message, node)
    found[name] = Requirements(form, translation)


def resources_of(job: Job, known: dict[str, Requirements], source: Source) -> dict[str, Any] | None:
    """The step's `resources`; None if the job has the default requirements."""
    name = job.texts.get("resource_requirements", DEFAULT)
    if name == DEFAULT:
        return None
    if name in known:
        known[name].is_used = True
        return known[name].resources()
    hint = did_you_mean(name, [*known, DEFAULT]) or "declare them under 'resource_requirements'"
    message = f"there are no resource requirements '{name}'"
    raise source.refuse("unknown_requirements", message, job.at("resource_requirements"), hint=hint)


def report_unused(known: dict[str, Requirements], steps: Node, translation: Translation) -> None:
    """Warn of unused requirements, and remark above the steps that a runtime is not a timeout."""
    for name, each in known.items():
        if not each.is_used:
            message = f"the resource requirements '{name}' are declared and never used"
            translation.warn("unused_requirements", message, each.form.at("name"), hint="remove or use them")
        elif each.form.get("runtime") is not None:
            runtime = plain(each.form.at("runtime"))
            translation.remark(
                steps, f"'{name}' has the runtime {runtime}, which is not a limit: add 'timeout' for one"
            )


def sort_jobs(jobs: list[Job], known: dict[str, Requirements], method: str | None) -> list[Job]:
    """The jobs in the order in which Torc starts them: the largest first, if the file asks for it."""
    if method in (None, "none"):
        return jobs

    def size(job: Job) -> tuple[float, ...]:
        found = known.get(job.texts.get("resource_requirements", DEFAULT))
        if found is None:
            return (0.0, -60.0, 0.0)
        time, memory = -found.runtime, -float(found.memory_bytes)
        return (-found.gpus, time, memory) if method == "gpus_runtime_memory" else (-found.gpus, memory, time)

    return sorted(jobs, key=size)
