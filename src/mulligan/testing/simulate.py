"""`python -m mulligan.testing.simulate --histories N --seed S`: random histories, and what happened in them.

Exit code 1 if a promise was broken: with the seed, the promise, the smallest workflow that still breaks it, the last
facts, and the command that shows it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import get_context

import msgspec

from ..core import events as e
from ..core.workflow import Handler, Step, Workflow, encode
from .simulator import Simulation
from .workflows import is_lawful

SHRINKING_TRIES_MAX = 400
FACTS_SHOWN = 30

_replace = msgspec.structs.replace


class Broken(msgspec.Struct, frozen=True):
    """A history in which a promise was broken."""

    seed: int
    sentence: str
    workflow: Workflow
    last_facts: str

    def render(self) -> str:
        return (
            f"seed {self.seed}: {self.sentence}\n"
            f"\nthe smallest workflow that still does this:\n{encode(self.workflow).decode()}\n"
            f"\nits last facts:\n{self.last_facts}\n"
            f"\nto see it again: make simulate N=1 SEED={self.seed}"
        )


class Tally(msgspec.Struct):
    """What happened in many histories, by kind and name."""

    histories: int = 0
    events: int = 0
    counts: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)

    def add(self, simulation: Simulation) -> None:
        self.histories += 1
        self.events += len(simulation.row.log)
        self.counts.update(("what happened", name) for name in simulation.happened.elements())
        self.counts.update(_shapes(simulation.workflow))
        for entry in simulation.row.log:
            self.counts.update(_labels(entry.fact))

    def merge(self, other: Tally) -> None:
        self.histories += other.histories
        self.events += other.events
        self.counts.update(other.counts)

    def render(self) -> str:
        """A table: kinds of things, and how often each was seen."""
        kinds = dict.fromkeys(kind for kind, _ in sorted(self.counts))
        lines = []
        for kind in kinds:
            named = sorted((name, count) for (k, name), count in self.counts.items() if k == kind)
            lines.append(f"{kind}:")
            lines += [f"  {count:>9} {name}" for name, count in named]
        return "\n".join(lines)


def _labels(fact: e.Fact) -> Iterator[tuple[str, str]]:
    """What a fact counts as."""
    yield "fact", type(fact).__name__
    if isinstance(fact, e.HandlerStarted):
        yield "strategy", fact.strategy
    elif isinstance(fact, e.RungPassed):
        yield "rung passed", f"{fact.rung}: {fact.reason}"
    elif isinstance(fact, e.StepFailed):
        yield "route", fact.route.status
        yield "code", fact.failure.code
    elif isinstance(fact, e.StepCompleted | e.CommandCompleted) and fact.recovered_by:
        yield "recovered by", fact.recovered_by
    elif isinstance(fact, e.CommandEntered):
        yield "command", fact.role
    elif isinstance(fact, e.StepSkipped | e.StepRestored):
        yield "passed over", fact.reason
    elif isinstance(fact, e.RunStopping):
        yield "stopping", fact.cause + (" now" if fact.now else "")
    elif isinstance(fact, e.ReportRefused):
        yield "refused", fact.reason
    elif isinstance(fact, e.AttemptScheduled):
        yield "attempt", fact.cause


def _shapes(workflow: Workflow) -> Iterator[tuple[str, str]]:
    for step in workflow.steps:
        yield "join", step.join
        yield "action", step.action.kind if step.action else "map"
        yield from (("need", need.on + (" of a group" if need.is_group else "")) for need in step.needs)
        yield from (("edge", f"{edge.on}, then {edge.then}" if edge.then else edge.on) for edge in step.edges)


# -- running ---------------------------------------------------------------------------------------------------------


def simulate(seeds: Iterable[int], kind: type[Simulation] = Simulation) -> tuple[Tally, list[Broken]]:
    """Run these histories one after the other; the broken ones are cut down."""
    tally, broken = Tally(), []
    for seed in seeds:
        simulation = kind(seed)
        sentence = _complaint(simulation)
        tally.add(simulation)
        if sentence:
            broken.append(_shrunk(seed, sentence, simulation))
    return tally, broken


def _complaint(simulation: Simulation) -> str:
    """The sentence about what went wrong; empty if nothing did."""
    try:
        simulation.run()
    except AssertionError as error:
        return str(error)
    except Exception as error:  # any error of the core is a finding, whatever its kind
        return f"the core crashed: {type(error).__name__}: {error}"
    return ""


def _shrunk(seed: int, sentence: str, simulation: Simulation) -> Broken:
    """The same seed over ever smaller workflows, as long as the same promise is broken."""
    found = Broken(seed, sentence, simulation.workflow, simulation.last_facts(FACTS_SHOWN))
    promise = sentence.partition(":")[0]
    tries = 0
    candidates = smaller(found.workflow)
    while tries < SHRINKING_TRIES_MAX and (candidate := next(candidates, None)) is not None:
        tries += 1
        again = type(simulation)(seed, candidate)
        complaint = _complaint(again)
        if complaint.partition(":")[0] == promise:
            found = Broken(seed, complaint, candidate, again.last_facts(FACTS_SHOWN))
            candidates = smaller(candidate)
    return found


def smaller(workflow: Workflow) -> Iterator[Workflow]:
    """Lawful workflows with one thing less: a step, an option of a step, an option of the whole."""
    every = (*_with_less_steps(workflow), *_with_less_options(workflow), *_with_less_settings(workflow))
    return (candidate for candidate in every if is_lawful(candidate))


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


# What a step is, in place of what it may have.
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


# -- the command -----------------------------------------------------------------------------------------------------


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} histories prove nothing")
    return number


def main(arguments: Sequence[str] | None = None, kind: type[Simulation] = Simulation) -> int:
    parser = argparse.ArgumentParser(prog="python -m mulligan.testing.simulate", description=__doc__)
    parser.add_argument("--histories", type=_at_least_one, default=2000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    tally, broken = _all(range(options.seed, options.seed + options.histories), options.jobs, kind)
    seconds = time.perf_counter() - started
    print(tally.render())
    for one in broken:
        print(f"\n{one.render()}")
    rate = tally.histories / seconds
    print(
        f"\n{tally.histories} histories, {tally.events} events, {rate:.0f} histories per second, {len(broken)} broken"
    )
    return 1 if broken else 0


def _all(seeds: range, jobs: int, kind: type[Simulation]) -> tuple[Tally, list[Broken]]:
    if jobs <= 1:
        return simulate(seeds, kind)
    tally, broken = Tally(), []
    with get_context("spawn").Pool(jobs) as pool:
        for part, found in pool.starmap(simulate, [(seeds[start::jobs], kind) for start in range(jobs)]):
            tally.merge(part)
            broken += found
    return tally, broken


if __name__ == "__main__":
    sys.exit(main())
