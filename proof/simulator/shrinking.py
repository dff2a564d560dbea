"""Shrink a history that broke an invariant: find the smallest workflow and the fewest faults that still do."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

import msgspec

from mulligan.core.model.events import Entry
from mulligan.core.model.workflow import Handler, Step, Workflow, encode
from proof.simulator.cpu_limit import limit_cpu
from proof.simulator.fault_budget import ALL_FAULTS, FaultBudget
from proof.simulator.workflows import is_allowed

TRIES_MAX = 600
SECONDS_MAX = 60.0
# For each attempt: a history without end leaves no time for many.
COMPUTING_SECONDS_MAX = 2.0
FACTS_SHOWN = 30
_NAME_OR_NUMBER = re.compile(r"'[^']*'|[\d.]+")

_replace = msgspec.structs.replace


class History(Protocol):
    """The interface of one history, before and after it was run."""

    workflow: Workflow
    # How often each kind of thing happened, by name.
    happened: Counter[str]
    # Steps in its phase with faults; its maximum number of engines; the kind of its store.
    steps: int
    engines_max: int
    store_kind: str

    def run(self) -> object: ...

    def logs(self) -> Iterable[Iterable[Entry]]: ...

    def last_facts(self, count: int) -> str: ...


class Histories(Protocol):
    """Create the history of a seed, with its own or the given workflow, and within a fault budget."""

    def __call__(self, seed: int, workflow: Workflow | None = None, *, budget: FaultBudget = ALL_FAULTS) -> History: ...


class BrokenHistory(msgspec.Struct, frozen=True):
    """A history in which an invariant was broken."""

    seed: int
    sentence: str
    workflow: Workflow | None = None
    budget: FaultBudget = ALL_FAULTS
    happened: Counter[str] = Counter()
    last_facts: str = ""

    def render(self) -> str:
        parts = [f"seed {self.seed}: {self.sentence}"]
        if self.workflow is not None:
            what = ", ".join(f"{name} {count}" for name, count in sorted(self.happened.items()))
            parts += [
                f"the smallest workflow that still does this:\n{encode(self.workflow).decode()}",
                f"the fewest faults that still do this: {_described(self.budget)}\nwhat happened: {what}",
                f"its last facts:\n{self.last_facts}",
            ]
        return "\n\n".join([*parts, f"to reproduce it: make simulate N=1 SEED={self.seed}"])


def _described(budget: FaultBudget) -> str:
    limits = [
        f"without {', '.join(sorted(budget.without))}" if budget.without else "",
        "" if budget.steps_max is None else f"faults until step {budget.steps_max}",
        "" if budget.engines_max is None else f"{budget.engines_max} engines at most",
        f"in a store of kind '{budget.store}'" if budget.store else "",
    ]
    return "; ".join(limit for limit in limits if limit) or "all faults of the seed"


def complaint(history: History, computing_seconds: float = COMPUTING_SECONDS_MAX) -> str:
    """Run it and return what went wrong; "" if nothing did."""
    try:
        with limit_cpu(computing_seconds):
            history.run()
    except AssertionError as error:
        return str(error)
    except Exception as error:  # any error that gets here is a finding, whatever its kind
        return f"crashed: {type(error).__name__}: {error}"
    return ""


def shrunk(histories: Histories, seed: int, sentence: str, history: History) -> BrokenHistory:
    """Reduce the history of this seed while the same invariant is broken in the same way."""
    until, tries = time.monotonic() + SECONDS_MAX, 0
    budget = ALL_FAULTS
    found = _found(seed, sentence, history, budget)
    candidates = _less(history, budget)
    while tries < TRIES_MAX and time.monotonic() < until and (candidate := next(candidates, None)) is not None:
        tries += 1
        workflow, budget = candidate
        again = histories(seed, workflow, budget=budget)
        sentence = complaint(again)
        if _kind(sentence) == _kind(found.sentence):
            found = _found(seed, sentence, again, budget)
            candidates = _less(again, budget)
    return found


def _kind(sentence: str) -> str:
    """What a sentence says without its names and numbers. Another one about the same promise may be another defect."""
    return _NAME_OR_NUMBER.sub("", sentence)


def _found(seed: int, sentence: str, history: History, budget: FaultBudget) -> BrokenHistory:
    facts = history.last_facts(FACTS_SHOWN)
    return BrokenHistory(
        seed, sentence, history.workflow, budget=budget, happened=Counter(history.happened), last_facts=facts
    )


def _less(history: History, budget: FaultBudget) -> Iterator[tuple[Workflow, FaultBudget]]:
    """Yield histories with one thing less: faults first, then parts of the workflow."""
    calmer = budget.less(history.happened.keys(), history.steps, history.engines_max, history.store_kind)
    return chain(
        ((history.workflow, less) for less in calmer), ((workflow, budget) for workflow in smaller(history.workflow))
    )


# -- smaller workflows -----------------------------------------------------------------------------------------------


def smaller(workflow: Workflow) -> Iterator[Workflow]:
    """Yield valid workflows with one thing less: a step, an option of a step, an option of the workflow."""
    every = (*_with_less_steps(workflow), *_with_less_options(workflow), *_with_less_settings(workflow))
    return (candidate for candidate in every if is_allowed(candidate))


def _with_less_steps(workflow: Workflow) -> Iterator[Workflow]:
    for gone in workflow.steps if len(workflow.steps) > 1 else ():
        steps = tuple(_without(step, gone.name) for step in workflow.steps if step is not gone)
        groups = {name: tuple(m for m in members if m != gone.name) for name, members in workflow.groups.items()}
        yield _replace(workflow, steps=steps, groups=groups)


def _without(step: Step, gone: str) -> Step:
    edges = [edge for edge in step.edges if edge.to != gone]
    return _replace(
        step,
        needs=tuple(need for need in step.needs if need.of != gone),
        edges=tuple(_replace(edge, index=index) for index, edge in enumerate(edges)),
    )


def _with_less_options(workflow: Workflow) -> Iterator[Workflow]:
    for index, step in enumerate(workflow.steps):
        for plainer in _plainer(step):
            yield _replace(workflow, steps=(*workflow.steps[:index], plainer, *workflow.steps[index + 1 :]))
    for plainer in _plainer(workflow.end):
        yield _replace(workflow, end=plainer)


# Essential fields of a step, which are not removed.
_IDENTITY = frozenset({"name", "action", "map", "do", "edges"})


def _plainer(step: Step) -> Iterator[Step]:
    plain = Step(name=step.name)
    for field in step.__struct_fields__:
        if field not in _IDENTITY and getattr(step, field) != getattr(plain, field):
            yield _replace(step, **{field: getattr(plain, field)})
    for gone in step.edges:
        kept = (edge for edge in step.edges if edge is not gone)
        yield _replace(step, edges=tuple(_replace(edge, index=index) for index, edge in enumerate(kept)))
    if step.on_failure is not None and step.on_failure != _bare(step.on_failure):
        yield _replace(step, on_failure=_bare(step.on_failure))


def _bare(handler: Handler) -> Handler:
    first = handler.commands[0]
    return Handler((type(first)(action=first.action),), handler.strategy)


def _with_less_settings(workflow: Workflow) -> Iterator[Workflow]:
    for field, plain in (("timeout", None), ("outputs", {}), ("fail_fast", "never"), ("cancel_grace", 10.0)):
        if getattr(workflow, field) != plain:
            yield _replace(workflow, **{field: plain})
