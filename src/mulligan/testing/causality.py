"""Why a step was entered, skipped or brought back, and what that makes of the run: told from the log alone.

The promises about the graph. They ask only where the answer is plain: in the first round, of first visits.
"""

from __future__ import annotations

from datetime import timedelta

from mulligan.core.model import events as e
from mulligan.core.model.workflow import END
from mulligan.testing.log_facts import LogFacts


def promise_4_a_step_is_entered_for_a_cause(seen: LogFacts, entry: e.Entry) -> None:
    """At its first visit: its needs are met, and it was arrived at as its join wants it."""
    fact = entry.fact
    assert isinstance(fact, e.StepEntered)
    if fact.visit != 1 or seen.round != 1 or fact.step == END or fact.step in seen.looped_to or seen.has_kept:
        return
    unmet = _unmet_needs(seen, fact.step)
    if unmet:
        raise seen.broken("promise 4", f"'{fact.step}' was entered, and its needs of {unmet} are not met", entry)
    node = seen.graph.nodes[fact.step]
    came = [arc.source for arc in node.arrivals if arc.key in seen.taken]
    if node.arrivals and len(came) < (len(node.arrivals) if node.step.join == "all" else 1):
        join = f"{len(came)} of {len(node.arrivals)} arrivals for a join '{node.step.join}'"
        raise seen.broken("promise 4", f"'{fact.step}' was entered with {join}", entry)


def promise_4_a_step_is_skipped_for_a_cause(seen: LogFacts, entry: e.Entry) -> None:
    """As long as no loop has put anything back: a need is unmet, or somebody did not arrive."""
    fact = entry.fact
    assert isinstance(fact, e.StepSkipped)
    if seen.round != 1 or seen.has_kept or seen.looped_to or fact.step in seen.visits:
        return
    if fact.reason == "need_unmet" and not _unmet_needs(seen, fact.step):
        raise seen.broken("promise 4", f"'{fact.step}' was skipped, and all its needs are met", entry)
    arrivals = seen.graph.nodes[fact.step].arrivals
    if fact.reason == "no_arrival" and arrivals and all(arc.key in seen.taken for arc in arrivals):
        raise seen.broken("promise 4", f"'{fact.step}' was skipped, and everybody has arrived", entry)


def _unmet_needs(seen: LogFacts, step: str) -> list[str]:
    groups = seen.workflow.groups
    needed = [(name, n.on) for n in seen.steps[step].needs for name in (groups[n.of] if n.is_group else (n.of,))]
    return [name for name, on in needed if seen.outcomes.get(name, "") not in _MEETS[on]]


_MEETS = {
    "success": ("completed", "stood_in", "allowed"),
    "success_or_skipped": ("completed", "stood_in", "allowed", "skipped"),
    "always": ("completed", "stood_in", "allowed", "skipped", "failed", "cancelled"),
}


def promise_4_a_loop_edge_goes_alone(seen: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.StepCompleted)
    if len(fact.taken) > 1 and any(seen.graph.arc(fact.step, index).is_loop for index in fact.taken):
        raise seen.broken("promise 4", f"'{fact.step}' took a loop edge and others beside it", entry)


def promise_4_remediations_bring_back_what_they_repaired(seen: LogFacts, entry: e.Entry) -> None:
    """When a round is over that nobody stopped and no loop went through."""
    if seen.round != 1 or seen.stop is not None or seen.looped_to:
        return
    for fact in seen.failures:
        route = fact.route
        if route.edge is None or route.to == END or not seen.graph.arc(fact.step, route.edge).edge.then:
            continue
        is_done = seen.ends.get((route.to or "", route.visit)) == "completed"
        if is_done and (fact.step, fact.visit) not in seen.repaired:
            raise seen.broken("promise 4", f"'{route.to}' completed, and '{fact.step}' never heard of it", entry)


def promise_1_what_is_unhandled_fails_the_run(seen: LogFacts, entry: e.Entry) -> None:
    """Told from the log alone, for the first round, where neither an operator, nor time, nor `end` has a say."""
    is_left_alone = seen.stop is None or seen.stop.cause == "failed_fast"
    if seen.round != 1 or not is_left_alone or seen.workflow.end.action is not None or seen.workflow.outputs:
        return
    unhandled = [fact.step for fact in seen.failures if not fact.is_allowed and not _is_handled(seen, fact)]
    if isinstance(entry.fact, e.RunCompleted) == bool(unhandled):
        raise seen.broken("promise 1", f"{type(entry.fact).__name__}, and unhandled are {unhandled}", entry)


def _is_handled(seen: LogFacts, fact: e.StepFailed) -> bool:
    """The visit it was sent to completed, or failed and was handled in turn."""
    target = (fact.route.to or "", fact.route.visit)
    if fact.route.status != "selected" or target not in seen.ends:
        return False
    if seen.ends[target] == "failed":
        following = next(f for f in seen.failures if (f.step, f.visit) == target)
        return not following.is_allowed and _is_handled(seen, following)
    return seen.ends[target] == "completed"


# -- the ladder ------------------------------------------------------------------------------------------------------

_ROUNDING = timedelta(milliseconds=1)


def promise_5_a_retry_is_due_when_its_rule_says(seen: LogFacts, entry: e.Entry) -> None:
    """Not before its delay is over, however the jitter fell. A server that asked for more time may get it."""
    fact = entry.fact
    assert isinstance(fact, e.RetryScheduled)
    backoff = seen.specs[fact.place].rules[fact.rule].backoff
    asked = backoff.delay * backoff.factor ** (fact.number - 1)
    if backoff.delays:
        asked = backoff.delays[min(fact.number, len(backoff.delays)) - 1]
    least = min(asked, asked if backoff.max_delay is None else backoff.max_delay) * (1 - backoff.jitter)
    if fact.due < entry.at + timedelta(seconds=least) - _ROUNDING:
        waits = f"{(fact.due - entry.at).total_seconds():g}s"
        raise seen.broken("promise 5", f"retry {fact.number} of '{fact.place}' waits {waits} of {least:g}s", entry)
