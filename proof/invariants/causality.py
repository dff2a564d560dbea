"""Invariants of the graph: why a step was entered, skipped or brought back, checked from the log alone.

Most check only clear cases: the first round, and first visits.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from mulligan.core.model import events as e
from mulligan.core.model.workflow import END
from proof.invariants.log_facts import LogFacts


def promise_4_a_step_is_entered_for_a_cause(facts: LogFacts, entry: e.Entry) -> None:
    """At its first visit its needs are met, and its join is satisfied."""
    fact = entry.fact
    assert isinstance(fact, e.StepEntered)
    if fact.visit != 1 or facts.round != 1 or fact.step == END or fact.step in facts.looped_to or facts.has_kept:
        return
    unmet = _unmet_needs(facts, fact.step)
    if unmet:
        raise facts.violation("promise 4", f"'{fact.step}' was entered, and its needs of {unmet} are not met", entry)
    node = facts.graph.nodes[fact.step]
    came = [arc.source for arc in node.arrivals if arc.key in facts.taken]
    if node.arrivals and len(came) < (len(node.arrivals) if node.step.join == "all" else 1):
        join = f"{len(came)} of {len(node.arrivals)} arrivals for a join '{node.step.join}'"
        raise facts.violation("promise 4", f"'{fact.step}' was entered with {join}", entry)


def promise_4_a_step_is_skipped_for_a_cause(facts: LogFacts, entry: e.Entry) -> None:
    """Unless a loop put something back: a need is unmet, or an arrival is missing."""
    fact = entry.fact
    assert isinstance(fact, e.StepSkipped)
    if facts.round != 1 or facts.has_kept or facts.looped_to or fact.step in facts.visits:
        return
    if fact.reason == "need_unmet" and not _unmet_needs(facts, fact.step):
        raise facts.violation("promise 4", f"'{fact.step}' was skipped, and all its needs are met", entry)
    arrivals = facts.graph.nodes[fact.step].arrivals
    if fact.reason == "no_arrival" and arrivals and all(arc.key in facts.taken for arc in arrivals):
        raise facts.violation("promise 4", f"'{fact.step}' was skipped, and all arrivals are there", entry)


def _unmet_needs(facts: LogFacts, step: str) -> list[str]:
    groups = facts.workflow.groups
    needed = [(name, n.on) for n in facts.steps[step].needs for name in (groups[n.of] if n.is_group else (n.of,))]
    return [name for name, on in needed if facts.outcomes.get(name, "") not in _MEETS[on]]


_MEETS = {
    "success": ("completed", "stood_in", "allowed"),
    "success_or_skipped": ("completed", "stood_in", "allowed", "skipped"),
    "always": ("completed", "stood_in", "allowed", "skipped", "failed", "cancelled"),
}


def promise_4_a_loop_edge_goes_alone(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.StepCompleted)
    if len(fact.taken) > 1 and any(facts.graph.arc(fact.step, index).is_loop for index in fact.taken):
        raise facts.violation("promise 4", f"'{fact.step}' took a loop edge and others beside it", entry)


def promise_4_remediations_bring_back_what_they_repaired(facts: LogFacts, entry: e.Entry) -> None:
    """At the end of a round that was not stopped and in which no loop was taken."""
    if facts.round != 1 or facts.stop is not None or facts.looped_to:
        return
    for fact in facts.failures:
        route = fact.route
        if route.edge is None or route.to == END or not facts.graph.arc(fact.step, route.edge).edge.then:
            continue
        is_done = facts.ends.get((route.to or "", route.visit)) == "completed"
        if is_done and (fact.step, fact.visit) not in facts.repaired:
            raise facts.violation("promise 4", f"'{route.to}' completed, and '{fact.step}' was not notified", entry)


def promise_4_no_result_is_older_than_what_it_depends_on(facts: LogFacts, entry: e.Entry) -> None:
    """At the end of a round: no step kept its result from before it while one that it depends on was visited in it."""
    if facts.keeps_completed:
        return
    workspace = facts.workflow.workspace
    opens = "" if workspace is None else workspace.opens
    for name in facts.graph.nodes:
        if name not in facts.decided_in_round:
            # The worktree of a fork is a copy: the results that it keeps are in it.
            sources = (one for one in _sources(facts, name) if one != opens)
            source = next((one for one in sources if facts.visits_in_round[one]), None)
            if source is not None:
                what = f"'{source}' ran in round {facts.round}, and '{name}', which depends on it, kept its result"
                raise facts.violation("promise 4", what, entry)


def _sources(facts: LogFacts, name: str) -> Iterator[str]:
    """The steps that a step depends on directly. With `join: first` that is only one of the arrivals: none is named."""
    groups, node = facts.workflow.groups, facts.graph.nodes[name]
    for need in node.step.needs:
        yield from groups[need.of] if need.is_group else (need.of,)
    if node.step.join != "first":
        yield from (arc.source for arc in node.arrivals)
    if facts.outcomes.get(name) == "stood_in":
        yield facts.replaced_by[name]


def promise_1_what_is_unhandled_fails_the_run(facts: LogFacts, entry: e.Entry) -> None:
    """In the first round, unless an operator, a timeout or `end` decided the status."""
    is_left_alone = facts.stop is None or facts.stop.cause == "failed_fast"
    if facts.round != 1 or not is_left_alone or facts.workflow.end.action is not None or facts.workflow.outputs:
        return
    unhandled = [fact.step for fact in facts.failures if not fact.is_allowed and not _is_handled(facts, fact)]
    if isinstance(entry.fact, e.RunCompleted) == bool(unhandled):
        raise facts.violation("promise 1", f"{type(entry.fact).__name__}, and unhandled are {unhandled}", entry)


def _is_handled(facts: LogFacts, fact: e.StepFailed) -> bool:
    """Whether the visit it was routed to completed, or failed and was handled in turn."""
    target = (fact.route.to or "", fact.route.visit)
    if fact.route.status != "selected" or target not in facts.ends:
        return False
    if facts.ends[target] == "failed":
        following = next(f for f in facts.failures if (f.step, f.visit) == target)
        return not following.is_allowed and _is_handled(facts, following)
    return facts.ends[target] == "completed" and not _is_at_the_limit_of_a_loop(facts, fact, target)


def _is_at_the_limit_of_a_loop(facts: LogFacts, fact: e.StepFailed, target: tuple[str, int]) -> bool:
    """Whether the last visit of a remediation was to lead back, and could not: a step that it leads to is used up."""
    is_last = facts.visits.get(target[0]) == target[1] and target in facts.dead_ends
    edge = facts.graph.arc(fact.step, fact.route.edge).edge if fact.route.edge is not None else None
    if not is_last or (edge is not None and edge.then) or target[0] not in facts.graph.loops.get(fact.step, ()):
        return False
    entered = {entry.fact.step: entry.seq for entry in facts.log if isinstance(entry.fact, e.StepEntered)}
    failed = next(entry.seq for entry in facts.log if entry.fact is fact)
    inside = facts.graph.loops[fact.step]
    if any(arc.is_loop and entered[arc.to] > failed for name in inside for arc in facts.graph.nodes[name].arcs):
        return False
    back = [arc.to for arc in facts.graph.nodes[target[0]].arcs if arc.is_loop and arc.edge.on == "success"]
    return any(facts.visits_in_round[name] > facts.steps[name].max_visits for name in back)


# -- the ladder ------------------------------------------------------------------------------------------------------

_ROUNDING = timedelta(milliseconds=1)


def promise_5_a_retry_is_due_when_its_rule_says(facts: LogFacts, entry: e.Entry) -> None:
    """A retry waits for at least its delay, with any jitter. A server may ask for more."""
    fact = entry.fact
    assert isinstance(fact, e.RetryScheduled)
    backoff = facts.specs[fact.place].rules[fact.rule].backoff
    asked = backoff.delay * backoff.factor ** (fact.number - 1)
    if backoff.delays:
        asked = backoff.delays[min(fact.number, len(backoff.delays)) - 1]
    least = min(asked, asked if backoff.max_delay is None else backoff.max_delay) * (1 - backoff.jitter)
    if fact.due < entry.at + timedelta(seconds=least) - _ROUNDING:
        waits = f"{(fact.due - entry.at).total_seconds():g}s"
        raise facts.violation("promise 5", f"retry {fact.number} of '{fact.place}' waits {waits} of {least:g}s", entry)
