"""What the steps of a run requested and used, and what they should request next time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from mulligan.core.deciding.classify import exceeded_limit, lacks_memory
from mulligan.core.deciding.workers.resource_usage import MEMORY_FACTOR, MIB, NO_MEMORY, NO_TIME, TIMEOUT_FACTOR
from mulligan.core.model.actions import traits_of
from mulligan.core.model.events import AttemptFailed, AttemptSucceeded, Entry, StepAdded, StepDefined
from mulligan.core.model.failure import number_or_zero
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.text.formatting import format_duration, format_size
from mulligan.core.model.workflow import END, END_TIMEOUT_SECONDS, Command, Step, Workflow

What = Literal["memory", "cpus", "timeout"]
Why = Literal["ran_out", "close", "too_much", "not_asked"]

GIB = 1024 * MIB
# The margin above the highest usage, and the share of a limit that counts as too close.
HEADROOM, CLOSE = 1.25, 0.9
# Memory and cpus: a request of more than this many times the usage blocks other tasks.
WASTE = 2.0
# A smaller limit protects nothing.
MEMORY_BYTES_MIN = 64 * MIB
# A timeout is for exceptional cases: it may be generous, and matters little for a short step.
TIMEOUT_HEADROOM, TIMEOUT_WASTE, TIMEOUT_SECONDS_MIN = 3.0, 10.0, 60.0
# The cpus of a shorter attempt do not predict those of a longer one.
CPUS_MEASURED_SECONDS_MIN = 1.0
CPUS_MIN = CPUS_STEP = 0.25
# An attempt that used fewer cpus until its timeout was not slow: it hung.
HUNG_CPUS_MAX = 0.05
# Figures are rounded up to these steps, depending on their size.
_MEMORY_STEPS = ((512 * MIB, 16 * MIB), (4 * GIB, 128 * MIB), (math.inf, GIB))
_SECONDS_STEPS = ((60.0, 10.0), (600.0, 60.0), (3600.0, 300.0), (math.inf, 1800.0))


class Requested(msgspec.Struct, frozen=True):
    """What the workflow requests. Memory in bytes, time in seconds; None if it requests nothing."""

    memory: int | None = None
    cpus: float | None = None
    gpus: int | None = None
    labels: tuple[str, ...] = ()
    timeout: float | None = None
    nodes: int | None = None


class Usage(msgspec.Struct):
    """What was measured of all attempts together. What was not measured is 0; tokens, None.

    `memory` and `cpus` leave out attempts that were killed or timed out: these do not show what the work needs.
    """

    attempts: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    # The most of any attempt, also of one that ran out; then the most of an attempt that ended well.
    memory: int = 0
    memory_well: int = 0
    seconds_well: float = 0.0
    # The most cpus that an attempt used, of those that ran long enough.
    cpus: float = 0.0
    tokens: int | None = None
    # How many attempts ran out, and the highest limit that one of them had.
    out_of_memory: int = 0
    too_little_memory: int = 0
    # Without those that hung, which are counted below. Only the step's own timeout counts for the seconds.
    timed_out: int = 0
    too_little_seconds: float = 0.0
    hung: int = 0
    killed: int = 0
    ended_well: int = 0


class Advice(msgspec.Struct, frozen=True):
    """What a step should request, and why."""

    what: What
    value: float
    why: Why
    text: str

    @property
    def written(self) -> str:
        """The value as a workflow file has it."""
        if self.what == "memory":
            return written_size(int(self.value))
        return written_duration(self.value) if self.what == "timeout" else f"{self.value:g}"


class Consumption(msgspec.Struct, frozen=True):
    """A step with its items, or all steps of a matrix together: one entry in the workflow file."""

    name: str
    # How many steps of a matrix, or items of a map, ran; 1 for any other step.
    parts: int
    asked: Requested
    used: Usage
    advice: tuple[Advice, ...] = ()

    @property
    def to_write(self) -> dict[str, str]:
        """What to write in the file, by key; `resources` is one value, so all of it."""
        given = {one.what: one.written for one in self.advice}
        keys: dict[str, str] = {}
        if "memory" in given or "cpus" in given:
            keys["resources"] = _resources(self.asked, given)
        if "timeout" in given:
            keys["timeout"] = given["timeout"]
        return keys


def consumption(workflow: Workflow, entries: Iterable[Entry]) -> tuple[Consumption, ...]:
    """What was requested and used in a run, in the order of the file, for the steps that were measured.

    The calls that a program makes of a step are one entry.
    """
    steps = {step.name: step for step in (*workflow.steps, workflow.end)}
    families: dict[str, list[Step]] = {}
    for step in steps.values():
        families.setdefault(step.sweep or step.name, []).append(step)
    used: dict[str, Usage] = {}
    places: dict[str, set[str]] = {}
    definitions: dict[str, Step] = {}
    for entry in entries:
        fact = entry.fact
        if isinstance(fact, StepDefined):
            definitions[fact.digest] = fact.definition
            families.setdefault(fact.definition.name, []).append(fact.definition)
        elif isinstance(fact, StepAdded) and fact.definition in definitions:
            steps[fact.step] = definitions[fact.definition]
        if not isinstance(fact, AttemptSucceeded | AttemptFailed) or not fact.usage or "@" in fact.place:
            continue
        if (name := step_name(fact.place)) not in steps:
            # The corrected workflow no longer has this step.
            continue
        step = steps[name]
        if traits_of(step.action).calls_run:
            # The usage of a child run is what its agents have spent; its steps are measured in that run.
            continue
        family = step.sweep or step.name
        _add(used.setdefault(family, Usage()), fact, requested_by([step]))
        places.setdefault(family, set()).add(fact.place.partition(".")[0])
    found = ((name, requested_by(family), used[name]) for name, family in families.items() if name in used)
    return tuple(
        Consumption(name=name, parts=len(places[name]), asked=asked, used=one, advice=_supported_advice(asked, one))
        for name, asked, one in found
    )


def _supported_advice(asked: Requested, used: Usage) -> tuple[Advice, ...]:
    """The advice that the attempts support.

    Advice to request less needs an attempt that ended well: a failed one may have stopped before it needed much.
    """
    return tuple(one for one in advice(asked, used) if used.ended_well or one.why != "too_much")


def requested_by(steps: list[Step]) -> Requested:
    """The most that any of the steps, or a command of their items, requests."""
    commands: list[Command] = [command for step in steps for command in (step, *step.do)]
    resources = [command.resources for command in commands if command.resources]
    return Requested(
        max((each.memory for each in resources if each.memory), default=None),
        max((each.cpus for each in resources if each.cpus is not None), default=None),
        max((each.gpus for each in resources if each.gpus), default=None),
        next((each.labels for each in resources if each.labels), ()),
        max((command.timeout for command in commands if command.timeout and not _is_given(command)), default=None),
        max((each.nodes for each in resources if each.nodes), default=None),
    )


def _is_given(command: Command) -> bool:
    """Whether its timeout is the default of `end`, which the file does not set."""
    return isinstance(command, Step) and command.name == END and command.timeout == END_TIMEOUT_SECONDS


# -- what was used ---------------------------------------------------------------------------------------------------


def _add(used: Usage, fact: AttemptSucceeded | AttemptFailed, asked: Requested) -> None:
    wall, cpu = number_or_zero(fact.usage.get("wall_seconds")), number_or_zero(fact.usage.get("cpu_seconds"))
    memory, tokens = int(number_or_zero(fact.usage.get("peak_memory"))), fact.usage.get("tokens")
    used.attempts += 1
    used.wall_seconds = round(used.wall_seconds + wall, 6)
    used.cpu_seconds = round(used.cpu_seconds + cpu, 6)
    if tokens is not None:
        used.tokens = (used.tokens or 0) + int(number_or_zero(tokens))
    if isinstance(fact, AttemptSucceeded):
        used.ended_well += 1
        used.memory_well = max(used.memory_well, memory)
        used.seconds_well = max(used.seconds_well, wall)
    elif fact.failure.code in (NO_MEMORY, NO_TIME) or fact.failure.signal is not None:
        _add_cut_short(used, fact, asked, memory)
        return
    used.memory = max(used.memory, memory)
    if wall >= CPUS_MEASURED_SECONDS_MIN:
        used.cpus = max(used.cpus, round(cpu / wall, 3))


def _add_cut_short(used: Usage, fact: AttemptFailed, asked: Requested, memory: int) -> None:
    """Add an attempt that did not end by itself. One that ran out of a resource needs more of it than it was given.

    The failure has the limit, if it was not that of the workflow.
    """
    details: dict[str, Any] = fact.failure.details
    if fact.failure.code == NO_MEMORY:
        used.out_of_memory += 1
        given = int(number_or_zero(details.get("memory"))) or asked.memory or 0
        used.memory = max(used.memory, memory)
        if lacks_memory(fact.failure):
            used.too_little_memory = max(used.too_little_memory, given, memory)
    elif fact.failure.code != NO_TIME:
        used.killed += 1
    elif exceeded_limit(fact.failure) != "timeout":
        used.timed_out += 1
    elif _has_hung(fact.usage):
        used.hung += 1
    else:
        used.timed_out += 1
        used.too_little_seconds = max(
            used.too_little_seconds, number_or_zero(details.get("timeout")) or asked.timeout or 0.0
        )


def _has_hung(usage: dict[str, Any]) -> bool:
    """Whether an attempt that timed out used almost no cpu, over a time long enough to measure."""
    wall = number_or_zero(usage.get("wall_seconds"))
    if "cpu_seconds" not in usage or wall < CPUS_MEASURED_SECONDS_MIN:
        return False
    return number_or_zero(usage["cpu_seconds"]) < HUNG_CPUS_MAX * wall


# -- advice ----------------------------------------------------------------------------------------------------------


def advice(asked: Requested, used: Usage) -> tuple[Advice, ...]:
    """What to request instead: more, less, or something that was not requested so far."""
    return (*_memory(asked.memory, used), *_cpus(asked.cpus, used), *_timeout(asked.timeout, used))


def _memory(asked: int | None, used: Usage) -> Iterator[Advice]:
    enough = _round_up(max(used.memory * HEADROOM, MEMORY_BYTES_MIN), _MEMORY_STEPS)
    if used.out_of_memory:
        more = _more(used.too_little_memory, MEMORY_FACTOR, used.memory_well, HEADROOM)
        text = f"it ran out at {format_size(used.too_little_memory)}"
        yield Advice("memory", _round_up(more, _MEMORY_STEPS), "ran_out", text)
    elif not used.memory:
        return
    elif asked is None:
        if used.memory >= MEMORY_BYTES_MIN:
            yield Advice("memory", enough, "not_asked", f"it used {format_size(used.memory)} and requested none")
    elif used.memory > asked * CLOSE:
        yield Advice("memory", enough, "close", f"it used {format_size(used.memory)} of {format_size(asked)}")
    elif asked > used.memory * WASTE and enough < asked:
        yield Advice("memory", enough, "too_much", f"it used {format_size(used.memory)} of {format_size(asked)}")


def _cpus(asked: float | None, used: Usage) -> Iterator[Advice]:
    if not used.cpus:
        return
    had = 1.0 if asked is None else asked
    text = f"it used {used.cpus:.1f}" + ("" if asked is None else f" of {asked:g}")
    if used.cpus > had * HEADROOM:
        yield Advice("cpus", _round_cpus(used.cpus), "not_asked" if asked is None else "close", text)
    elif asked is not None and asked > used.cpus * WASTE:
        fewer = max(CPUS_MIN, _round_cpus(used.cpus * HEADROOM))
        if fewer < asked:
            yield Advice("cpus", fewer, "too_much", text)


def _timeout(asked: float | None, used: Usage) -> Iterator[Advice]:
    took = used.seconds_well
    enough = generous_timeout(took)
    if used.too_little_seconds:
        more = _more(used.too_little_seconds, TIMEOUT_FACTOR, took, HEADROOM)
        text = f"it did not finish in {format_duration(used.too_little_seconds)}"
        yield Advice("timeout", _round_up(more, _SECONDS_STEPS), "ran_out", text)
    elif asked is None:
        if took >= TIMEOUT_SECONDS_MIN:
            yield Advice("timeout", enough, "not_asked", f"it took {format_duration(took)} and has no timeout")
    elif took > asked * CLOSE:
        yield Advice("timeout", enough, "close", f"it took {format_duration(took)} of {format_duration(asked)}")
    elif took and asked > took * TIMEOUT_WASTE and enough * WASTE <= asked:
        yield Advice("timeout", enough, "too_much", f"it took {format_duration(took)} of {format_duration(asked)}")


def generous_timeout(took: float) -> float:
    """A timeout for attempts that take so long when they succeed."""
    return _round_up(max(took * TIMEOUT_HEADROOM, TIMEOUT_SECONDS_MIN), _SECONDS_STEPS)


def _more(too_little: float, factor: float, well: float, headroom: float) -> float:
    """What a successful attempt used, if that is more than the exceeded limit; otherwise a multiple of the limit."""
    return well * headroom if well > too_little else max(too_little * factor, well * headroom)


def _round_up(value: float, steps: tuple[tuple[float, float], ...]) -> float:
    step = next(step for below, step in steps if value <= below)
    return math.ceil(value / step) * step


def _round_cpus(cpus: float) -> float:
    step = CPUS_STEP if cpus < 1 else 1.0
    return math.ceil(round(cpus / step, 6)) * step


# -- as written in a file ---------------------------------------------------------------------------------------------


def written_size(value: int) -> str:
    """`768MiB`, `2GiB`: an exact size for a workflow file."""
    if value % GIB == 0:
        return f"{value // GIB}GiB"
    return f"{value // MIB}MiB" if value % MIB == 0 else f"{value}B"


def written_duration(seconds: float) -> str:
    """`1m30s`: a duration for a workflow file."""
    whole = math.ceil(seconds)
    parts = ((whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def _resources(asked: Requested, given: dict[What, str]) -> str:
    cpus = f"{asked.cpus:g}" if asked.cpus is not None else None
    memory = written_size(asked.memory) if asked.memory else None
    values = {
        "cpus": given.get("cpus", cpus),
        "memory": given.get("memory", memory),
        "gpus": str(asked.gpus) if asked.gpus else None,
        "labels": f"[{', '.join(asked.labels)}]" if asked.labels else None,
        "nodes": str(asked.nodes) if asked.nodes else None,
    }
    return "{" + ", ".join(f"{name}: {value}" for name, value in values.items() if value is not None) + "}"
