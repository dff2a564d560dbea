"""Random workflows in which time plays no part: tasks, needs and every way to deal with failures."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from mulligan.core.model.workflow import (
    END,
    Action,
    Adjust,
    Edge,
    Expression,
    Need,
    Rule,
    Step,
    Template,
    Triage,
    TriageAgent,
    Workflow,
)
from mulligan.testing.history import command, handler, retry, shell, step, workflow

CODES = ("TIMEOUT", "OUT_OF_MEMORY", "WORKER_LOST", "CUSTOM")


def reading_workflow(rng: Random) -> Workflow:
    """A plain workflow with steps that are alike but for their names, and with steps that read others."""
    plain = plain_workflow(rng)
    named = {one.name: one for one in plain.steps}
    steps: list[Step] = []
    for one in plain.steps:
        if one.name.startswith("s") and rng.random() < 0.5:
            one = _with(one, **_reading(rng, one, _before(one, named)))
        steps.append(one)
        if one.name.startswith("s") and rng.random() < 0.6:
            steps += _twins(rng, one, named)
    return _with_steps(plain, _needing_twins(rng, steps))


def _before(one: Step, named: dict[str, Step]) -> list[str]:
    """The steps that it needs, and those that these need: only such may be read."""
    found: dict[str, None] = {}
    for need in one.needs:
        found |= dict.fromkeys((need.of, *_before(named[need.of], named)))
    return list(found)


def _reading(rng: Random, one: Step, before: list[str]) -> dict[str, Any]:
    """Fields that read a step before this one: its output, or more of it."""
    if not before:
        return {}
    name = rng.choice(before)
    text = rng.choice((f"steps.{name}.output", f"steps.{name}.output", f"steps.{name}.status"))
    reads = (f"steps.{name}",)
    where = rng.choice(("binding", "when", "validate"))
    if where == "binding":
        return {"action": Action("shell", {"text": "true"}, {"X": Template((Expression(text, reads),))})}
    sign, value = rng.choice(("==", "!=")), rng.choice(("null", "'failed'"))
    return {where: Expression(f"{text} {sign} {value}", reads)}


def _twins(rng: Random, one: Step, named: dict[str, Step]) -> Iterator[Step]:
    """Steps like this one, each with remediations of its own, or with the same."""
    has_own = rng.random() < 0.7
    for number in range(rng.randint(1, 2)):
        edges = []
        for edge in one.edges:
            target = f"{edge.to}x{one.name}x{number}" if has_own else edge.to
            edges.append(Edge(**{**{name: getattr(edge, name) for name in edge.__struct_fields__}, "to": target}))
            if has_own and not any(target == other.to for other in edges[:-1]):
                yield _with(named[edge.to], name=target)
        yield _with(one, name=f"{one.name}x{number}", edges=tuple(edges))


def _needing_twins(rng: Random, steps: list[Step]) -> list[Step]:
    """Some steps that need a step need its twins too; and one may read what all of them gave."""
    found: list[Step] = []
    for one in steps:
        more = [
            Need(twin.name, need.on)
            for need in one.needs
            for twin in steps
            if twin.name.startswith(f"{need.of}x") and not one.name.startswith(need.of)
        ]
        found.append(_with(one, needs=(*one.needs, *more)) if more and rng.random() < 0.7 else one)
    return found


def _with_steps(plain: Workflow, steps: list[Step]) -> Workflow:
    return Workflow(**{**{name: getattr(plain, name) for name in plain.__struct_fields__}, "steps": tuple(steps)})


def plain_workflow(rng: Random) -> Workflow:
    count = rng.randint(2, 7)
    steps: list[Step] = []
    mends: list[Step] = []
    for index in range(count):
        name = f"s{index}"
        fields = _fields(rng)
        edges: list[Edge] = []
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            edges.append(_edge(rng, len(edges), name, mends))
        before = [f"s{i}" for i in range(index)]
        needs = [_need(rng, one) for one in before if rng.random() < 0.5]
        steps.append(step(name, needs=needs, **fields))
        steps[-1] = _with(steps[-1], edges=tuple(edges))
    found = [*steps, *mends]
    policy = rng.choice(("on_critical", "on_critical", "always", "never"))
    end = step(END, action=shell("end")) if rng.random() < 0.3 else Step(name=END)
    limit = rng.choice((None, None, None, 100.0))
    parallel = rng.choice((None, None, None, 2))
    return workflow(*found, end=end, fail_fast=policy, timeout=limit, max_parallel=parallel)


def _with(one: Step, **fields: Any) -> Step:
    return Step(**{**{name: getattr(one, name) for name in one.__struct_fields__}, **fields})


def _need(rng: Random, name: str) -> Need:
    return Need(name, rng.choice(("success", "success", "success", "success_or_skipped", "always")))


def _fields(rng: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if rng.random() < 0.4:
        fields["rules"] = _rules(rng)
    if rng.random() < 0.3:
        strategy = rng.choice(("recovery", "fallback", "cleanup"))
        rerun = rng.choice((0, 0, 2)) if strategy == "recovery" else 0
        fields["on_failure"] = handler(*("fix", "more")[: rng.randint(1, 2)], strategy=strategy, rerun=rerun)
    if rng.random() < 0.3:
        fields["timeout"] = 30.0
    if rng.random() < 0.15:
        fields["triage"] = _triage(rng)
    if rng.random() < 0.15:
        fields["continue_on_error"] = True
    if rng.random() < 0.2:
        fields["undo"] = command("undo")
    if rng.random() < 0.15:
        fields["on_lost"] = "fail"
    if rng.random() < 0.15:
        fields["validator"] = command("check")
    if rng.random() < 0.1:
        fields["on_success"] = (command("note"),)
    if rng.random() < 0.1:
        fields["handler_failure_fatal"] = True
    if rng.random() < 0.1:
        fields["fail_fast"] = rng.choice(("always", "never"))
    return fields


def _rules(rng: Random) -> tuple[Rule, ...]:
    """One or two rules: for a code, for an exit code, for any failure."""
    script = command("mend") if rng.random() < 0.3 else None
    delay = rng.choice((0.0, 5.0, 60.0))
    (last,) = retry(rng.randint(1, 3), delay=delay, recovery_script=script)
    if rng.random() < 0.5:
        return (last,)
    first = Rule(
        codes=(rng.choice(CODES),), max_retries=rng.randint(1, 2), adjust=Adjust(timeout=2.0, max_timeout=90.0)
    )
    other = Rule(exit_codes=(11, 12), max_retries=2)
    return (rng.choice((first, other)), last) if rng.random() < 0.6 else (rng.choice((first, other)),)


def _triage(rng: Random) -> Triage:
    agent = TriageAgent("someone", command("ask")) if rng.random() < 0.4 else None
    return Triage(
        when=rng.choice(("unmatched", "exhausted", "always")),
        timeout=rng.choice((None, 600.0)),
        default=rng.choice(("retry", "fail")),
        agent=agent,
    )


def _edge(rng: Random, index: int, source: str, mends: list[Step]) -> Edge:
    """A failure edge to a step of its own, or to one that another step has too."""
    if mends and rng.random() < 0.3:
        target = rng.choice(mends).name
    else:
        target = f"m{len(mends)}"
        mends.append(step(target, **(_fields(rng) if rng.random() < 0.3 else {})))
    return Edge(
        target,
        index,
        "failure",
        codes=rng.choice(((), (), (rng.choice(CODES),))),
        exit_codes=rng.choice(((), (), (11,))),
        handles=rng.random() < 0.85,
        then=rng.choice((None, "rerun", "continue")),
    )
