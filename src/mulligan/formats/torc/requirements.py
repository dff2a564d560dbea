"""Resource requirements: what steps ask for, and which job goes first."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.durations import duration
from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.formats.torc.job import Job
from mulligan.formats.torc.records import REQUIREMENTS, RUNTIME_DEFAULT, entries
from mulligan.formats.translation import Translation, made
from mulligan.language.nodes import Node, Scalar, Source, describe, plain
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import did_you_mean

# Every workflow of Torc's has them: one processor, and memory that nobody counts.
DEFAULT = "default"
# No program lives on less: such a figure was written to be written.
MEMORY_BYTES_MIN = 32 * 1024 * 1024
_MEMORY = lazy_regex(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)[iI]?[bB]?\s*")
_UNITS = {"": "B", "k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}
_CPUS_LEAST = 0.001


class Requirements:
    """What one name of Torc's asks for."""

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
            message = f"'{self.form.get('name')}' asks for {nodes} nodes, and its steps run on one machine each"
            translation.warn("cluster", message, self.form.at("num_nodes"))
        if self.memory and self.memory_bytes < MEMORY_BYTES_MIN:
            message = f"'{self.form.get('name')}' asks for {self.memory}, on which no program lives: it is not a limit"
            hint = "memory is a limit here: write what it needs"
            translation.warn("memory", message, self.form.at("memory"), hint=hint)
            self.memory = ""

    def resources(self) -> dict[str, Any]:
        """The step's `resources`, each where it was said."""
        form = self.form
        asked = {
            "cpus": ("num_cpus", form.get("num_cpus") or _CPUS_LEAST),
            "memory": ("memory", self.memory or None),
            "gpus": ("num_gpus", self.gpus or None),
        }
        return {ours: made(value, form.node.get(key) or form.node) for ours, (key, value) in asked.items() if value}


def _memory(node: Node | None, source: Source) -> tuple[int, str]:
    """How many bytes, and that in our words."""
    if node is None:
        return 0, ""  # noted
    found = _MEMORY.fullmatch(node.text) if isinstance(node, Scalar) and node.value is not None else None
    if found is None:
        message = f"'memory' is {describe(node)}, a size such as 512m or 2g is expected"
        raise source.refuse("type", message, node)
    number, unit = found.group(1), found.group(2).lower()
    size = float(number) * 1024 ** ["", "k", "m", "g", "t"].index(unit)
    return int(size), f"{number}{_UNITS[unit]}" if size else ""


def _runtime(node: Node | None, source: Source) -> float:
    """Seconds."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return duration(RUNTIME_DEFAULT)
    try:
        if isinstance(node, Scalar) and isinstance(node.value, str) and node.text[:1] == "P":
            return duration(node.text)
    except ValueError:
        pass
    raise source.refuse("type", f"'runtime' is {describe(node)}, a duration such as PT30M or P0DT1H is expected", node)


def read_requirements(workflow: Fields, translation: Translation) -> dict[str, Requirements]:
    """All of them by their names."""
    source = translation.source
    found: dict[str, Requirements] = {}
    for item in entries(workflow, "resource_requirements"):
        with source.noting:
            form: Fields = REQUIREMENTS.read(item, "an entry of 'resource_requirements'", source)
            if "name" in form:
                _add(form, found, translation)
    return found


def _add(form: Fields, found: dict[str, Requirements], translation: Translation) -> None:
    name, node, source = form["name"], form.at("name"), translation.source
    if name == DEFAULT:
        message = f"'{DEFAULT}' is what jobs get that name no requirements, and cannot be declared"
        raise source.refuse("duplicate_name", message, node, hint="give it another name")
    if name in found:
        line = source.number(found[name].form.at("name"))
        message = f"there are two resource requirements '{name}': first in line {line}"
        raise source.refuse("duplicate_name", message, node)
    found[name] = Requirements(form, translation)


def of_job(job: Job, known: dict[str, Requirements], source: Source) -> dict[str, Any] | None:
    """The step's `resources`; None where a job asks for what every one gets."""
    name = job.texts.get("resource_requirements", DEFAULT)
    if name == DEFAULT:
        return None
    if name in known:
        known[name].is_used = True
        return known[name].resources()
    hint = did_you_mean(name, [*known, DEFAULT]) or "declare them under 'resource_requirements'"
    message = f"there are no resource requirements '{name}'"
    raise source.refuse("unknown_requirements", message, job.at("resource_requirements"), hint=hint)


def tell(known: dict[str, Requirements], steps: Node, translation: Translation) -> None:
    """Say what is made of none of them, and above the steps what their runtimes are not."""
    for name, each in known.items():
        if not each.is_used:
            message = f"the resource requirements '{name}' are declared and never used"
            translation.warn("unused_requirements", message, each.form.at("name"), hint="remove them, or use them")
        elif each.form.get("runtime") is not None:
            text = (
                f"'{name}' has the runtime {plain(each.form.at('runtime'))}, which is no limit: for one add 'timeout'"
            )
            translation.remark(steps, text)


def order(jobs: list[Job], known: dict[str, Requirements], method: str | None) -> list[Job]:
    """The jobs in the order in which Torc takes those that are ready: the largest first, if that was asked for."""
    if method in (None, "none"):
        return jobs

    def size(job: Job) -> tuple[float, ...]:
        found = known.get(job.texts.get("resource_requirements", DEFAULT))
        if found is None:
            return (0.0, -60.0, 0.0)
        time, memory = -found.runtime, -float(found.memory_bytes)
        return (-found.gpus, time, memory) if method == "gpus_runtime_memory" else (-found.gpus, memory, time)

    return sorted(jobs, key=size)
