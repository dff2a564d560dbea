"""The recovery ladder: what is done about a failure, rung by rung, top to bottom.

    0 classify   whatever happened is a Failure            (`classify.py`)
    1 retry      a rule matches and has budget left         -> RetryScheduled
    2 handle     the on_failure commands run                -> HandlerStarted
    3 triage     a person or an agent decides               -> StepParked
    4 route      a failure edge leads to a remediation      -> StepFailed, routed
    5 converge   everything reaches `end`                   (`converge.py`)

The first rung that deals with the failure ends the climb. A rung is a generator: it yields facts and returns
whether it dealt with it. Commands, items and scripts live rungs 0 to 2; triage and routes are for steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mulligan.core.deciding.adjustment import CAP, adjust, reached_cap
from mulligan.core.deciding.conditions import matching_rule
from mulligan.core.deciding.lifecycle import Facts, complete, enter_command, is_last_visit, make_failure, schedule
from mulligan.core.deciding.routes import alert_edges, edges_after_failure, failure_route, goes_back
from mulligan.core.deciding.stopping import conclude
from mulligan.core.evolve.arrivals import is_beyond_limit
from mulligan.core.model import events as e
from mulligan.core.model.events import Route
from mulligan.core.model.failure import Failure, figure
from mulligan.core.model.workflow import (
    END,
    END_TIMEOUT_SECONDS,
    RERUNS_AFTER_LOSS_MAX,
    Backoff,
    Handler,
    Rule,
    Template,
    Triage,
)
from mulligan.core.state.scope import Now, error_view
from mulligan.core.state.state import Place, State
from mulligan.errors import ExpressionFailed

Rung = Callable[[Now, Place, Failure], Generator[e.Fact, None, bool]]


def climb(now: Now, place: Place, failure: Failure) -> Facts:
    """A failure climbs from rung 1."""
    yield from _climb(now, place, failure, (retry, handle, triage, route))


def _climb(now: Now, place: Place, failure: Failure, rungs: tuple[Rung, ...]) -> Facts:
    if not now.may_start(place):
        yield from conclude(now, place)
        return
    for rung in rungs:
        if (yield from rung(now, place, failure)):
            return


# -- a lost worker: before the ladder ------------------------------------------------------------------------------


def lost(now: Now, place: Place, worker: str) -> Facts:
    """A lost worker spends nothing: the task runs again, up to three times; then, or if asked, it is a failure."""
    may_rerun = place.spec.on_lost == "rerun" and not any("WORKER_LOST" in rule.codes for rule in place.spec.rules)
    if place.phase == "stopping" or not now.may_start(place):
        yield e.AttemptCancelled(place.key, place.attempt)
    elif may_rerun and place.climb.losses <= RERUNS_AFTER_LOSS_MAX:
        yield from schedule(now, place, "lost")
    else:
        if may_rerun:
            yield e.RungPassed(place.key, "retry", "reruns_exhausted")
        message = f"the worker that ran it is gone ({worker})" if worker else "the worker that ran it is gone"
        yield e.AttemptFailed(place.key, place.attempt, make_failure(now, place, "WORKER_LOST", message))


# -- rung 1: retry ------------------------------------------------------------------------------


def retry(now: Now, place: Place, failure: Failure) -> Generator[e.Fact, None, bool]:
    """Reserve a retry if a rule grants one; its script runs only for a retry that will happen."""
    index = None if place.climb.reruns else matching_rule(place.spec.rules, failure)
    if index is None:
        yield e.RungPassed(place.key, "retry", "rules_not_asked" if place.climb.reruns else "no_rule")
        return False
    rule = place.spec.rules[index]
    number = place.climb.retries.get(index, 0) + 1
    delay = delay_seconds(rule.backoff, number, _seed(now.state, place), failure.details)
    due = max(now.at + timedelta(seconds=delay), _not_before(failure, now.at))
    refusal = _refusal(now, place, rule, number, due) or _capped(rule, place, failure)
    if refusal:
        yield e.RungPassed(place.key, "retry", refusal)
        return False
    adjusted = adjust(rule.adjust, place, failure)
    yield e.RetryScheduled(place.key, place.attempt + 1, index, number, due, rule.recovery_script is not None, adjusted)
    if rule.recovery_script is not None:
        yield from enter_command(now, place, "script", index)
    elif due <= now.at:
        yield from schedule(now, place, "retry")
    return True


def _not_before(failure: Failure, otherwise: datetime) -> datetime:
    """An open breaker says when it may be asked again: no retry is due before that, whatever the rule's delay."""
    if failure.code != "CIRCUIT_OPEN":
        return otherwise
    try:
        return max(otherwise, datetime.fromisoformat(failure.details["retry_at"]))
    except (KeyError, ValueError, TypeError):
        return otherwise


def _refusal(now: Now, place: Place, rule: Rule, number: int, due: datetime) -> str:
    """Why a rule that matches grants nothing any more; empty if it does."""
    spec = place.spec
    if is_beyond_limit(now.state, place):
        return "loop_limit"
    if rule.max_attempts is not None and place.climb.tries >= rule.max_attempts:
        return "rule_attempts_exhausted"
    if number > rule.max_retries:
        return "retries_exhausted"
    if spec.max_attempts is not None and place.climb.tries >= spec.max_attempts:
        return "attempts_exhausted"
    if spec.deadline is not None and due >= place.entered_at + timedelta(seconds=spec.deadline):
        return "deadline_passed"
    return ""


def _capped(rule: Rule, place: Place, failure: Failure) -> str:
    """`max_memory_reached` and the like, where a retry would get no more of what ran out; else empty."""
    cap = reached_cap(rule.adjust, place, failure)
    return f"{cap}_reached" if cap else ""


def with_cap(place: Place, failure: Failure) -> Failure:
    """The failure of an attempt of `place`, with the cap in its details that keeps its rule from giving more."""
    if failure.code not in ("OUT_OF_MEMORY", "TIMEOUT") or place.climb.reruns:
        return failure
    index = matching_rule(place.spec.rules, failure)
    cap = reached_cap(place.spec.rules[index].adjust, place, failure) if index is not None else ""
    return msgspec.structs.replace(failure, details={**failure.details, CAP: cap}) if cap else failure


def delay_seconds(backoff: Backoff, number: int, seed: str, details: Mapping[str, Any]) -> float:
    """How long to wait before the number-th retry. The jitter is a hash: the same run waits the same every time."""
    limit = float("inf") if backoff.max_delay is None else backoff.max_delay
    delay = min(limit, _asked_seconds(backoff, number))
    share = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8]) / 2**64
    delay = min(limit, delay * (1 + backoff.jitter * (2 * share - 1)))
    delay = max(delay, min(limit, figure(details.get("retry_after"))))
    return max(0.0, min(delay, _LONGEST_SECONDS))


def _asked_seconds(backoff: Backoff, number: int) -> float:
    if backoff.delays:
        return backoff.delays[min(number, len(backoff.delays)) - 1]
    return backoff.delay * _growth(backoff.factor, number)


def _growth(factor: float, number: int) -> float:
    try:
        return min(factor ** (number - 1), _GROWTH_MAX)
    except OverflowError:
        return _GROWTH_MAX


# A century: dates stay representable whatever a workflow or a server asks for.
_LONGEST_SECONDS = 100 * 365 * 86400.0
_GROWTH_MAX = 1e12


def _seed(state: State, place: Place) -> str:
    return f"{state.run.run_id}:{place.key}:{place.visit}:{place.attempt}"


def after_script(now: Now, place: Place, fact: e.Fact) -> Facts:
    """The script's own failure is recorded and does not stop the retry."""
    if not now.may_start(place):
        yield from conclude(now, place)
    else:
        yield from proceed(now, place)


def proceed(now: Now, place: Place) -> Facts:
    """The reserved retry starts when its script has ended and its delay is over."""
    climb_ = place.climb
    if place.status == "backing_off" and not climb_.is_script_open and climb_.due is not None and climb_.due <= now.at:
        yield from schedule(now, place, "retry")


# -- rung 2: handle ------------------------------------------------------------------------------


def handle(now: Now, place: Place, failure: Failure) -> Generator[e.Fact, None, bool]:
    """Run the on_failure commands. Fatal failures get here too."""
    handler = place.spec.on_failure
    if handler is None:
        return False
    refusal = _unhandled(now.state, place, handler)
    if refusal:
        yield e.RungPassed(place.key, "handle", refusal)
        return False
    due = None if handler.timeout is None else now.at + timedelta(seconds=handler.timeout)
    yield e.HandlerStarted(place.key, place.attempt, handler.strategy, due)
    yield from enter_command(now, place, "handler", 0)
    return True


def _unhandled(state: State, place: Place, handler: Handler) -> str:
    """Why the handler does not run: it ran for this very attempt already, or the rerun that it is for cannot happen."""
    if place.climb.handled_attempt == place.attempt:
        return "handled_once"
    if handler.rerun and is_beyond_limit(state, place):
        return "loop_limit"
    return "reruns_exhausted" if handler.rerun and place.climb.handled_times >= handler.rerun else ""


def after_handler_command(now: Now, place: Place, fact: e.Fact, index: int) -> Facts:
    """The next command, or the end of the handler."""
    handler = _handler(place)
    if place.climb.is_handler_late:
        message = f"the handler took longer than {handler.timeout or END_TIMEOUT_SECONDS:g}s"
        yield _handler_failed(now, place, make_failure(now, place, "TIMEOUT", message))
    elif isinstance(fact, e.CommandCancelled):
        yield from conclude(now, place)
    elif isinstance(fact, e.CommandFailed) and not (fact.is_allowed and _may_fail(place, fact)):
        yield _handler_failed(now, place, fact.failure)
    elif index + 1 < len(handler.commands):
        if now.may_start(place) or now.may_clean_up(place):
            yield from enter_command(now, place, "handler", index + 1)
        else:
            yield from conclude(now, place)
    else:
        yield _handler_ended(now, place, handler)


def _may_fail(place: Place, fact: e.CommandFailed) -> bool:
    """Best effort does not reach to the files that the place has to write: without them it is not recovered."""
    return fact.failure.code != "OUTPUT_MISSING" or not place.spec.writes


def _handler(place: Place) -> Handler:
    assert place.spec.on_failure is not None
    return place.spec.on_failure


def _handler_failed(now: Now, place: Place, cause: Failure) -> e.HandlerFailed:
    found = make_failure(now, place, "HANDLER_FAILED", cause.message, exit_code=cause.exit_code, cause=(cause,))
    return e.HandlerFailed(place.key, place.attempt, found)


def _handler_ended(now: Now, place: Place, handler: Handler) -> e.Fact:
    """Its commands succeeded: what it captured, else what the last command gave, is its output."""
    try:
        output = _handler_output(now, place, handler)
    except ExpressionFailed as error:
        return _handler_failed(now, place, make_failure(now, place, "EXPRESSION_FAILED", error.message))
    if handler.strategy == "custom" and not _is_decision(output):
        message = 'a custom handler writes {"status": "completed" or "failed", "output": …} to $MULLIGAN_OUTPUT'
        return _handler_failed(now, place, make_failure(now, place, "OUTPUT_INVALID", message))
    return e.HandlerSucceeded(place.key, place.attempt, handler.strategy, output)


def _handler_output(now: Now, place: Place, handler: Handler) -> Any:
    output = place.climb.handler_output
    if handler.capture:
        seen = {"output": output, "error": error_view(place.failure)}
        # As values of an action: a plain path to an artifact stays a reference.
        output = {name: now.render(Template((x,)), place, **seen) for name, x in handler.capture.items()}
    return now.fetched(output) if handler.strategy == "custom" else output


def _is_decision(output: Any) -> bool:
    return isinstance(output, dict) and output.get("status") in ("completed", "failed")


def after_handler_success(now: Now, place: Place, fact: e.HandlerSucceeded) -> Facts:
    """The table of strategies: who completes the step, and with what."""
    handler = _handler(place)
    if handler.strategy == "cleanup":
        yield from climb_after_handler(now, place)
    elif handler.strategy == "custom":
        if fact.output["status"] == "completed":
            yield from complete(now, place, fact.output.get("output"), "custom")
        else:
            yield from climb_after_handler(now, place)
    elif handler.rerun:
        yield from schedule(now, place, "rerun") if now.may_start(place) else conclude(now, place)
    else:
        yield from complete(now, place, fact.output, handler.strategy)


def climb_after_handler(now: Now, place: Place) -> Facts:
    """The handler did not deal with it, or failed: its failure is beside the step's own, and the climb goes on."""
    if place.phase == "stopped":
        # A cleanup handler of something that was stopped, not failed.
        yield from conclude(now, place)
        return
    assert place.failure is not None
    yield from _climb(now, place, place.failure, (triage, route))


# -- rung 3: triage ------------------------------------------------------------------------------


def triage(now: Now, place: Place, failure: Failure) -> Generator[e.Fact, None, bool]:
    """Park the step for a person or an agent, if it asks for that and the failure is of that kind."""
    if place.role != "step":
        return False
    policy = now.state.step(place.key).triage
    if policy is None:
        return False
    if is_doomed(place, failure):
        yield e.RungPassed(place.key, "triage", "handler_failure_fatal")
        return False
    reason = _parking(policy, place, failure)
    if not reason:
        yield e.RungPassed(place.key, "triage", "critical" if failure.severity == "critical" else "rule_matched")
        return False
    if is_beyond_limit(now.state, place):
        # Nobody can say retry: a visit beyond max_visits never runs.
        yield e.RungPassed(place.key, "triage", "loop_limit")
        return False
    due = None if policy.timeout is None else now.at + timedelta(seconds=policy.timeout)
    yield e.StepParked(place.key, place.visit, place.attempt, failure, reason, due)
    return True


def _parking(policy: Triage, place: Place, failure: Failure) -> str:
    """Why a failure is parked; empty if it is not. Critical ones only with `always`."""
    if policy.when == "always":
        return "always"
    if failure.severity == "critical":
        return ""
    if matching_rule(place.spec.rules, failure) is None:
        return "unmatched"
    return "exhausted" if policy.when == "exhausted" else ""


def is_doomed(place: Place, failure: Failure) -> bool:
    """`handler_failure_fatal`, and the handler failed: critical, and no triage or route."""
    return place.spec.handler_failure_fatal and (
        failure.handler_failure is not None or failure.code == "HANDLER_FAILED"
    )


def after_classified(now: Now, place: Place, fact: e.StepClassified) -> Facts:
    if fact.verdict == "retry":
        yield from schedule(now, place, "classified")
    else:
        assert place.failure is not None
        yield from _climb(now, place, place.failure, (route,))


# -- rung 4: route ------------------------------------------------------------------------------


def route(now: Now, place: Place, failure: Failure) -> Generator[e.Fact, None, bool]:
    """The place has failed. A step looks at its failure edges; whatever is above a command is told."""
    if is_doomed(place, failure):
        failure = _critical(failure)
    if place.role != "step":
        yield e.CommandFailed(place.key, place.parent, place.role, failure, place.index, place.spec.continue_on_error)
        return True
    chosen = _chosen(now, place, failure)
    if chosen.status != "selected":
        yield e.RungPassed(place.key, "route", chosen.status if chosen.reason == "no_edge" else chosen.reason)
    yield step_failed(now, place, failure, chosen)
    return True


def _critical(failure: Failure) -> Failure:
    return msgspec.structs.replace(failure, severity="critical")


def _chosen(now: Now, place: Place, failure: Failure) -> Route:
    if place.key == END:
        return Route("no_route", reason="no_edge")
    if is_doomed(place, failure):
        return Route("no_route", reason="handler_failure_fatal")
    return failure_route(now.state, place, failure)


def step_failed(now: Now, place: Place, failure: Failure, chosen: Route) -> e.StepFailed:
    """The fact that ends a failed step, with every edge it takes."""
    if place.key == END:
        return e.StepFailed(END, place.visit, failure, place.attempt)
    is_allowed = place.spec.continue_on_error
    is_routed = chosen.is_sent
    edge = now.state.graph.arc(place.key, chosen.edge).edge if chosen.edge is not None else None
    taken = _taken(now, place, failure, chosen, is_allowed)
    awaits = is_routed and edge is not None and edge.then is not None
    return e.StepFailed(
        place.key,
        place.visit,
        failure,
        place.attempt,
        chosen,
        taken,
        is_allowed,
        is_final=not awaits and is_last_visit(now.state, place) and not goes_back(now.state, place.key, taken),
        routed_to_end=not is_routed,
        original_failed_step="" if is_routed else place.key,
    )


def _taken(now: Now, place: Place, failure: Failure, chosen: Route, is_allowed: bool) -> tuple[int, ...]:
    taken = set(alert_edges(now.state, place, failure))
    if is_doomed(place, failure):
        # No route, but a bell may ring: nobody should sleep through the worst.
        return tuple(sorted({*taken, *edges_after_failure(now, place, is_allowed=False, with_loops=True)}))
    if chosen.edge is not None:
        taken.add(chosen.edge)
    if not chosen.is_sent:
        taken.update(edges_after_failure(now, place, is_allowed=is_allowed, with_loops=True))
    elif not goes_back(now.state, place.key, taken):
        taken.update(edges_after_failure(now, place, is_allowed=False, with_loops=False))
    return tuple(sorted(taken))
