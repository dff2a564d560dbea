"""Two runs beside each other: what differs in their inputs, their definition, and in how their steps went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import yaml

from mulligan.core.model.workflow import END, Workflow
from mulligan.history.called_steps import with_called_steps
from mulligan.service.runs.stored.attempts import Costs
from mulligan.service.runs.stored.run_cache import RunCache
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.stored.run_workflows import published_number, published_text
from mulligan.service.runs.views.run_pages import StepLine, step_line
from mulligan.service.server.catalogue.text_diff import DiffLine, diff_texts

if TYPE_CHECKING:
    from mulligan.service.server.catalogue.catalogue import Catalogue

# How many lines of a difference, how many steps, and how many events of a run are looked at.
LINES_MAX, STEPS_MAX, EVENTS_MAX = 2_000, 500, 200_000
# A duration differs if it is this much longer, and if it is not over in an instant.
RATIO, SECONDS = 1.25, 0.5


class ComparedRun(msgspec.Struct, frozen=True):
    """One of the two runs."""

    run_id: int
    workflow: str
    # Of the definition; and of the published text, if it is one.
    version: str
    published: int | None
    status: str
    # How many steps have each status, with `end`.
    step_count: int


class ValuePair(msgspec.Struct, frozen=True):
    """An input in both runs. `in_a`, `in_b`: whether the run has it at all."""

    name: str
    a: Any
    b: Any
    in_a: bool
    in_b: bool

    @property
    def differs(self) -> bool:
        return self.in_a != self.in_b or self.a != self.b


class ComparedStep(msgspec.Struct, frozen=True):
    """A step in both runs; None in a run that does not have it."""

    name: str
    a: StepLine | None
    b: StepLine | None
    # Of all its attempts; None if nothing was measured.
    seconds_a: float | None
    seconds_b: float | None
    # What differs, the most important first.
    differences: tuple[Literal["only_a", "only_b", "outcome", "failure", "attempts", "duration"], ...]
    # Whether the definition of the step differs.
    is_changed: bool


class RunComparison(msgspec.Struct, frozen=True):
    """What differs between two runs. Lists have what differs first."""

    a: ComparedRun
    b: ComparedRun
    inputs: list[ValuePair]
    # "published": the texts that were published; "definition": what was read from a file; "": it is the same.
    text_kind: Literal["", "published", "definition"]
    text: list[DiffLine]
    has_more_text: bool
    # The steps that differ, then the others.
    steps: list[ComparedStep]
    step_total: int
    differing: int
    # The runs whose log is too long to add up the durations.
    unmeasured: tuple[int, ...]


class RunComparer:
    """Compares runs of one home."""

    def __init__(self, reader: RunReader, cache: RunCache, catalogue: Catalogue) -> None:
        self._reader, self._cache, self._catalogue = reader, cache, catalogue

    def compare(self, a: int, b: int) -> RunComparison:
        """What differs between two runs. `UnknownRun` if one of them is not there."""
        first, second = self._read(a), self._read(b)
        steps = _compare_steps(first, second)
        kind, lines = self._compare_texts(first, second)
        differing = sum(1 for one in steps if one.differences)
        return RunComparison(
            a=first.shown,
            b=second.shown,
            inputs=_compare_values(first.inputs, second.inputs),
            text_kind=kind,
            text=lines[:LINES_MAX],
            has_more_text=len(lines) > LINES_MAX,
            steps=steps[:STEPS_MAX],
            step_total=len(steps),
            differing=differing,
            unmeasured=tuple(one.shown.run_id for one in (first, second) if one.seconds is None),
        )

    def _read(self, run_id: int) -> _Read:
        record = self._reader.record(run_id)
        # A state of the cache counts until the next call.
        state = self._cache.get(run_id).state
        names = (*state.graph.nodes, END)
        seconds = None
        if record.seq <= EVENTS_MAX:
            costs = Costs(self._reader.events(run_id)).by_step
            seconds = {name: cost.wall_seconds for name, cost in costs.items()}
        used = state.run.present_version or record.version
        return _Read(
            shown=ComparedRun(
                run_id=run_id,
                workflow=record.workflow,
                version=used,
                published=published_number(self._reader, run_id),
                status="running" if record.status == "new" else str(record.status),
                step_count=len(state.graph.nodes),
            ),
            workflow=with_called_steps(state),
            lines={name: step_line(state, name) for name in names},
            inputs=dict(state.run.inputs) if state.places else self._reader.inputs(run_id) or {},
            seconds=seconds,
        )

    def _compare_texts(self, a: _Read, b: _Read) -> tuple[Literal["", "published", "definition"], list[DiffLine]]:
        if a.shown.version == b.shown.version:
            return "", []
        texts = self._published(a), self._published(b)
        if texts[0] is not None and texts[1] is not None:
            return "published", diff_texts(texts[0], texts[1])
        return "definition", diff_texts(_definition(a.workflow, b.workflow), _definition(b.workflow, a.workflow))

    def _published(self, run: _Read) -> str | None:
        """The published text of a run, if that is what it used."""
        shown = run.shown
        if shown.published is None:
            return None
        return published_text(self._catalogue, shown.workflow, shown.published, shown.version)


class _Read(msgspec.Struct, frozen=True):
    shown: ComparedRun
    workflow: Workflow
    lines: dict[str, StepLine]
    inputs: dict[str, Any]
    # By step; None if the log is too long.
    seconds: dict[str, float] | None


def _compare_values(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[ValuePair]:
    names = dict.fromkeys((*a, *b))
    pairs = [ValuePair(name, a.get(name), b.get(name), name in a, name in b) for name in names]
    return sorted(pairs, key=lambda one: not one.differs)


def _compare_steps(a: _Read, b: _Read) -> list[ComparedStep]:
    before = {step.name: step for step in (*a.workflow.steps, a.workflow.end)}
    after = {step.name: step for step in (*b.workflow.steps, b.workflow.end)}
    found = []
    for name in dict.fromkeys((*b.lines, *a.lines)):
        one, other = a.lines.get(name), b.lines.get(name)
        times = (a.seconds or {}).get(name), (b.seconds or {}).get(name)
        found.append(
            ComparedStep(
                name=name,
                a=one,
                b=other,
                seconds_a=times[0],
                seconds_b=times[1],
                differences=tuple(_differences(one, other, *times)),
                is_changed=name in before and name in after and before[name] != after[name],
            )
        )
    return sorted(found, key=_importance)


_ORDER = ("outcome", "failure", "only_a", "only_b", "attempts", "duration")


def _importance(one: ComparedStep) -> tuple[int, bool, float]:
    """What differs most comes first: a step that failed in one of the runs, then those whose time differs most."""
    if not one.differences:
        return len(_ORDER) + (not one.is_changed), False, 0.0
    has_failed = any(line is not None and line.status == "failed" for line in (one.a, one.b))
    apart = abs((one.seconds_a or 0.0) - (one.seconds_b or 0.0)) if one.differences[0] == "duration" else 0.0
    return _ORDER.index(one.differences[0]), not has_failed, -apart


def _differences(
    a: StepLine | None, b: StepLine | None, seconds_a: float | None, seconds_b: float | None
) -> Iterator[Literal["only_a", "only_b", "outcome", "failure", "attempts", "duration"]]:
    if a is None or b is None:
        yield "only_b" if a is None else "only_a"
        return
    if a.status != b.status:
        yield "outcome"
    elif a.code != b.code:
        yield "failure"
    if a.attempts != b.attempts:
        yield "attempts"
    if seconds_a is not None and seconds_b is not None:
        shorter, longer = sorted((seconds_a, seconds_b))
        if longer - shorter >= SECONDS and longer >= shorter * RATIO:
            yield "duration"


# -- texts -----------------------------------------------------------------------------------------------------------


def _definition(workflow: Workflow, other: Workflow) -> str:
    """What is in a workflow and not the same in another, as text."""
    same = {step.name: step for step in (*other.steps, other.end)}
    steps = [step for step in (*workflow.steps, workflow.end) if same.get(step.name) != step]
    top = {
        name: value
        for name in Workflow.__struct_fields__
        if name not in ("steps", "end") and (value := getattr(workflow, name)) != getattr(other, name)
    }
    shown = {**msgspec.to_builtins(top), **{step.name or END: msgspec.to_builtins(step) for step in steps}}
    return str(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=1_000)) if shown else ""
