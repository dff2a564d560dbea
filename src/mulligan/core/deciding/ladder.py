"""The recovery ladder: how a failure is dealt with, rung by rung.

    0 classify   the outcome becomes a Failure             (`classify.py`)
    1 retry      a rule matches and has budget left         -> RetryScheduled
    2 handle     the on_failure commands run                -> HandlerStarted
    3 triage     a person or an agent decides               -> StepParked (`triage_agent.py`)
    4 route      a failure edge leads to a remediation      -> StepFailed, routed
    5 converge   everything reaches `end`                   (`converge.py`)

The first rung that deals with the failure ends the climb. A rung is a generator: it yields facts and returns True if
it has dealt with the failure. Commands, items and scripts have rungs 0 to 2; only steps have triage and routes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mulligan.core.deciding.agents.triage_agent import decide_or_suggest, default_due, is_decided
from mulligan.core.deciding.classify import LIMIT, LIMIT_SECONDS, OUT_OF_JOB_MEMORY, WORKER_LIFE
from mulligan.core.deciding.conditions import matching_rule
from mulligan.core.deciding.lifecycle import Facts, complete, enter_command, is_last_visit, make_failure, schedule
from mulligan.core.deciding.programs import has_let_through, is_difference
from mulligan.core.deciding.rounds.child_failure import UNDO_FAILED, undo_failed_below, undo_failed_in_child
from mulligan.core.deciding.routes import alert_edges, edges_after_failure, failure_route, route_to_program, takes_loop
from mulligan.core.deciding.stopping import conclude, stop_triager
from mulligan.core.deciding.workers.adjustment import CAP, adjust, reached_cap
from mulligan.core.deciding.workers.resource_usage import attempt_limits
from mulligan.core.model import events as e
from mulligan.core.model.clusters.on_dask import loss_details
from mulligan.core.model.clusters.scheduler_job import SLURM, JobEnd, WorkerJob
from mulligan.core.model.clusters.worker_time import is_too_long
from mulligan.core.model.event_types import AvoidedHosts, Route
from mulligan.core.model.failure import Failure, number_or_zero
from mulligan.core.model.text.formatting import format_duration
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
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.scope import DecisionContext, error_view
from mulligan.core.state.state import Place, State
from mulligan.core.state.visit_limits import is_beyond_limit
from mulligan.errors import ExpressionFailed

_SIGKILL = 9
_KILLED_STATUS = 128 + _SIGKILL
# How long a retry with `host: other` waits for a host that has not failed it.
OTHER_HOST_SECONDS = 60.0
Rung = Callable[[DecisionContext, Place, Failure], Generator[e.Fact, None, bool]]


def climb(now: DecisionContext, place: Place, failure: Failure) -> Facts:
    """Try rungs 1 to 4."""
    yield from _climb(now, place, failure, (retry, handle, triage, route))


def _climb(now: DecisionContext, place: Place, failure: Failure, rungs: tuple[Rung, ...]) -> Facts:
    if not now.may_start(place):
        yield from conclude(now, place)
        return
    for rung in rungs:
        if (yield from rung(now, place, failure)):
            return


# -- a lost worker: before the ladder ------------------------------------------------------------------------------


def _reruns_lost(place: Place) -> bool:
    return place.spec.on_lost == "rerun" and not any("WORKER_LOST" in rule.codes for rule in place.spec.rules)


def reruns_after_loss(place: Place) -> bool:
    """Whether an attempt runs again if its worker is lost now, or its machine fails it. Not for ever."""
    return _reruns_lost(place) and place.climb.losses < RERUNS_AFTER_LOSS_MAX


def after_loss(now: DecisionContext, place: Place, fact: e.AttemptLost) -> Facts:
    """Run the attempt of a lost worker again, up to three times; after that, or with `on_lost: fail`, it has failed.

    The reruns do not count against any rule's retries. If somebody ended the job of the worker, they do not count at
    all; if the memory of the job was too small for its one task, the task has failed.
    """
    may_rerun = _reruns_lost(place)
    if place.phase == "stopping" or not now.may_start(place):
        yield e.AttemptCancelled(place.key, place.attempt)
    elif fact.ending == "memory":
        yield _out_of_memory_with_its_job(now, place, fact)
    elif may_rerun and fact.ending == "time":
        life = fact.job.job.life_seconds if fact.job is not None else None
        yield from _after_end_of_time(now, place, None, life, _job_details(fact.job))
    elif may_rerun and fact.ending == "free":
        yield from schedule(now, place, "job_ended")
    elif may_rerun and place.climb.losses <= RERUNS_AFTER_LOSS_MAX:
        yield from schedule(now, place, "lost")
    else:
        if may_rerun:
            yield e.RungPassed(place.key, "retry", "reruns_exhausted")
        named = f" ({fact.worker})" if fact.worker else ""
        message = f"the worker running it was lost{named}"
        details = {**_job_details(fact.job), **loss_details(fact.worker)}
        found = make_failure(now, place, "WORKER_LOST", message, details=details)
        yield e.AttemptFailed(place.key, place.attempt, found)


def _out_of_memory_with_its_job(now: DecisionContext, place: Place, fact: e.AttemptLost) -> e.AttemptFailed:
    assert fact.job is not None
    # It had all that the job has, and nobody could measure more.
    peak, memory = fact.job.job.memory, attempt_limits(place).memory
    known = {"peak_memory": peak, "memory": memory}
    details = {**_job_details(fact.job), **{name: value for name, value in known.items() if value}}
    found = make_failure(
        now, place, "OUT_OF_MEMORY", OUT_OF_JOB_MEMORY, details=details, exit_code=_KILLED_STATUS, signal=_SIGKILL
    )
    return e.AttemptFailed(place.key, place.attempt, with_cap_detail(place, found))


def after_interruption(now: DecisionContext, place: Place, fact: e.AttemptInterrupted) -> Facts:
    """Run it again, spending nothing, unless the time of workers has proved too short for it."""
    if place.phase == "stopping" or not now.may_start(place):
        yield e.AttemptCancelled(place.key, place.attempt)
    elif fact.life_seconds is None:
        yield from schedule(now, place, "interrupted")
    else:
        yield from _after_end_of_time(now, place, fact.ran_seconds, fact.life_seconds, _job_details(fact.job))


def _after_end_of_time(
    now: DecisionContext, place: Place, ran_seconds: float | None, life_seconds: float | None, details: dict[str, Any]
) -> Facts:
    if not is_too_long(place.climb.time_ends, ran_seconds, life_seconds):
        yield from schedule(now, place, "time")
        return
    seconds = max(place.climb.seconds_min, life_seconds or 0.0)
    message = f"it needs more than the {format_duration(seconds)} that its workers live"
    details = {**details, LIMIT: WORKER_LIFE, LIMIT_SECONDS: seconds}
    found = with_cap_detail(place, make_failure(now, place, "TIMEOUT", message, details=details))
    # Something ran, though nobody has measured more of it.
    usage = {"wall_seconds": ran_seconds or seconds}
    yield e.AttemptFailed(place.key, place.attempt, found, usage)


def _job_details(job: JobEnd | WorkerJob | None) -> dict[str, Any]:
    return {} if job is None else {SLURM: job.details}


# -- rung 1: retry ------------------------------------------------------------------------------


def retry(now: DecisionContext, place: Place, failure: Failure) -> Generator[e.Fact, None, bool]:
    """Reserve a retry if a rule grants one. Its recovery script runs only after the retry is reserved."""
    index = None if place.climb.reruns else matching_rule(place.spec.rules, failure)
    if index is None:
        yield e.RungPassed(place.key, "retry", "rules_not_asked" if place.climb.reruns else "no_rule")
        return False
    rule = place.spec.rules[index]
    number = place.climb.retries.get(index, 0) + 1
    seed = f"{now.state.run.run_id}:{place.key}:{place.visit}:{place.attempt}"
    delay = delay_seconds(rule.backoff, number, seed, failure.details)
    due = max(now.at + timedelta(seconds=delay), _not_before(failure, now.at))
    refusal = _retry_refusal(now, place, rule, number, due)
    if not refusal and _could_not_undo(now.state, place, failure):
        refusal = UNDO_FAILED
    if not refusal and has_let_through(place):
        refusal = "call_recorded"
    if not refusal and (cap := reached_cap(rule.adjust, place, failure)):
        # A retry would get no more of what ran out.
        refusal = f"{cap}_reached"
    if refusal:
        yield e.RungPassed(place.key, "retry", refusal)
        return False
    adjusted = adjust(rule.adjust, place, failure)
    yield e.RetryScheduled(
        place.key,
        place.attempt + 1,
        rule=index,
        number=number,
        due=due,
        has_script=rule.recovery_script is not None,
        adjusted=adjusted,
        avoids=_avoided_hosts(place, due) if rule.avoids_hosts else None,
    )
    if rule.recovery_script is not None:
        yield from enter_command(now, place, "script", index)
    elif due <= now.at:
        yield from schedule(now, place, "retry")
    return True


def _avoided_hosts(place: Place, due: datetime) -> AvoidedHosts | None:
    """The hosts on which the visit has failed, for a while after the retry is due; None if no host is known."""
    before = place.climb.avoids.hosts if place.climb.avoids is not None else ()
    hosts = tuple(dict.fromkeys((*before, place.host))) if place.host else before
    return AvoidedHosts(hosts, due + timedelta(seconds=OTHER_HOST_SECONDS)) if hosts else None


def _not_before(failure: Failure, otherwise: datetime) -> datetime:
    """The earliest time for a retry: an open breaker names one, whatever the delay of the rule."""
    if failure.code != "CIRCUIT_OPEN":
        return otherwise
    try:
        return max(otherwise, datetime.fromisoformat(failure.details["retry_at"]))
    except (KeyError, ValueError, TypeError):
        return otherwise


def _retry_refusal(now: DecisionContext, place: Place, rule: Rule, number: int, due: datetime) -> str:
    """Why a matching rule does not grant a retry; empty if it does."""
    spec = place.spec
    if is_beyond_limit(now.state, place):
        return "loop_limit"
    if rule.max_attempts is not None and place.climb.tries >= rule.max_attempts:
        return "rule_attempts_exhausted"
    if number > rule.max_retries:
        return "retries_exhausted"
    if spec.max_attempts is not None and place.climb.tries >= spec.max_attempts:
        return "attempts_exhausted"
    deadline = deadline_of(now.state, place)
    if deadline is not None and due >= deadline:
        return "deadline_passed"
    return ""


def with_cap_detail(place: Place, failure: Failure) -> Failure:
    """The failure, with the name of the cap in its details if the cap keeps the rule from giving more."""
    if failure.code not in ("OUT_OF_MEMORY", "TIMEOUT") or place.climb.reruns:
        return failure
    index = matching_rule(place.spec.rules, failure)
    cap = reached_cap(place.spec.rules[index].adjust, place, failure) if index is not None else ""
    return msgspec.structs.replace(failure, details={**failure.details, CAP: cap}) if cap else failure


def delay_seconds(backoff: Backoff, number: int, seed: str, details: Mapping[str, Any]) -> float:
    """The delay before the n-th retry. Jitter is derived from `seed`, so that a replay gets the same delay."""
    limit = float("inf") if backoff.max_delay is None else backoff.max_delay
    delay = min(limit, _base_delay(backoff, number))
    share = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8]) / 2**64
    delay = min(limit, delay * (1 + backoff.jitter * (2 * share - 1)))
    delay = max(delay, min(limit, number_or_zero(details.get("retry_after"))))
    return max(0.0, min(delay, _LONGEST_SECONDS))


def _base_delay(backoff: Backoff, number: int) -> float:
    if backoff.delays:
        return backoff.delays[min(number, len(backoff.delays)) - 1]
    return backoff.delay * _growth(backoff.factor, number)


def _growth(factor: float, number: int) -> float:
    try:
        return min(factor ** (number - 1), _GROWTH_MAX)
    except OverflowError:
        return _GROWTH_MAX


# A century: dates stay representable whatever delay a workflow or a server asks for.
_LONGEST_SECONDS = 100 * 365 * 86400.0
_GROWTH_MAX = 1e12


def after_script(now: DecisionContext, place: Place, fact: e.Fact) -> Facts:
    """Continue with the retry. A failure of the script is recorded and does not stop it."""
    if not now.may_start(place):
        yield from conclude(now, place)
    else:
        yield from start_due_retry(now, place)


def start_due_retry(now: DecisionContext, place: Place) -> Facts:
    """Start the reserved retry if its script has ended and its delay is over."""
    climb_ = place.climb
    if place.status == "backing_off" and not climb_.is_script_open and climb_.due is not None and climb_.due <= now.at:
        yield from schedule(now, place, "retry")


# -- rung 2: handle ------------------------------------------------------------------------------


def handle(now: DecisionContext, place: Place, failure: Failure) -> Generator[e.Fact, None, bool]:
    """Run the on_failure commands, for fatal failures too."""
    handler = place.spec.on_failure
    if handler is None:
        return False
    refusal = _handler_refusal(now.state, place, handler, failure)
    if refusal:
        yield e.RungPassed(place.key, "handle", refusal)
        return False
    due = None if handler.timeout is None else now.at + timedelta(seconds=handler.timeout)
    yield e.HandlerStarted(place.key, place.attempt, handler.strategy, due)
    yield from enter_command(now, place, "handler", 0)
    return True


def _handler_refusal(state: State, place: Place, handler: Handler, failure: Failure) -> str:
    """Why the handler does not run: it ran for this attempt already, or its rerun cannot happen."""
    if place.climb.handled_attempt == place.attempt:
        return "handled_once"
    if handler.rerun and is_beyond_limit(state, place):
        return "loop_limit"
    if handler.rerun and _could_not_undo(state, place, failure):
        return UNDO_FAILED
    return "reruns_exhausted" if handler.rerun and place.climb.handled_times >= handler.rerun else ""


def after_handler_command(now: DecisionContext, place: Place, fact: e.Fact, index: int) -> Facts:
    """Run the next command of the handler, or end the handler."""
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
    """`continue_on_error` does not cover the files that the place must write: without them it has not recovered."""
    return fact.failure.code != "OUTPUT_MISSING" or not place.spec.writes


def _handler(place: Place) -> Handler:
    assert place.spec.on_failure is not None
    return place.spec.on_failure


def _handler_failed(now: DecisionContext, place: Place, cause: Failure) -> e.HandlerFailed:
    found = make_failure(now, place, "HANDLER_FAILED", cause.message, exit_code=cause.exit_code, cause=(cause,))
    return e.HandlerFailed(place.key, place.attempt, found)


def _handler_ended(now: DecisionContext, place: Place, handler: Handler) -> e.Fact:
    """The commands succeeded. The output is what the handler captured, or the output of its last command."""
    try:
        output = _handler_output(now, place, handler)
    except ExpressionFailed as error:
        return _handler_failed(now, place, make_failure(now, place, error.failure_code, error.message))
    is_decision = isinstance(output, dict) and output.get("status") in ("completed", "failed")
    if handler.strategy == "custom" and not is_decision:
        message = 'a custom handler must write {"status": "completed" or "failed", "output": …} to $MULLIGAN_OUTPUT'
        return _handler_failed(now, place, make_failure(now, place, "OUTPUT_INVALID", message))
    return e.HandlerSucceeded(place.key, place.attempt, handler.strategy, output)


def _handler_output(now: DecisionContext, place: Place, handler: Handler) -> Any:
    output = place.climb.handler_output
    if handler.capture:
        names = {"output": output, "error": error_view(place.failure)}
        # Rendered like the values of an action: a plain path to an artifact stays a reference.
        output = {name: now.render(Template((x,)), place, **names) for name, x in handler.capture.items()}
    return now.fetch(output) if handler.strategy == "custom" else output


def after_handler_success(now: DecisionContext, place: Place, fact: e.HandlerSucceeded) -> Facts:
    """Complete the place, run it again, or climb on, by the strategy of the handler."""
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


def climb_after_handler(now: DecisionContext, place: Place) -> Facts:
    """Go on to rung 3: the handler failed or did not deal with the failure. Its own failure is attached."""
    if place.phase == "stopped":
        # The cleanup handler of a place that was stopped and has not failed.
        yield from conclude(now, place)
        return
    assert place.failure is not None
    yield from _climb(now, place, place.failure, (triage, route))


# -- rung 3: triage ------------------------------------------------------------------------------


def triage(now: DecisionContext, place: Place, failure: Failure) -> Generator[e.Fact, None, bool]:
    """Park the step for a person or an agent, if its triage policy covers this failure."""
    if place.role != "step":
        return False
    if is_difference(place, failure):
        yield e.StepParked(place.key, place.visit, place.attempt, failure=failure, reason="nondeterministic")
        return True
    policy = now.state.step(place.key).triage
    if policy is None:
        return False
    if is_fatal_handler_failure(place, failure):
        yield e.RungPassed(place.key, "triage", "handler_failure_fatal")
        return False
    reason = _parking_reason(now.state, policy, place, failure)
    if not reason:
        yield e.RungPassed(place.key, "triage", "critical" if failure.severity == "critical" else "rule_matched")
        return False
    if is_beyond_limit(now.state, place):
        # A retry is impossible: a visit beyond max_visits never runs.
        yield e.RungPassed(place.key, "triage", "loop_limit")
        return False
    agent = policy.agent
    # With an agent, the time of a person begins when the agent has not decided.
    yield e.StepParked(
        place.key,
        place.visit,
        attempt=place.attempt,
        failure=failure,
        reason=reason,
        due=default_due(now, policy) if agent is None else None,
        agent="" if agent is None else agent.provider,
    )
    if agent is not None:
        yield from enter_command(now, place, "triager", 0)
    return True


def _could_not_undo(state: State, place: Place, failure: Failure) -> bool:
    """Whether another attempt may do again what a child run of the place, or of an item of it, could not undo."""
    return undo_failed_in_child(place, failure) or (place.items is not None and undo_failed_below(state, place))


def _parking_reason(state: State, policy: Triage, place: Place, failure: Failure) -> str:
    """Why the failure is parked; empty if it is not. Critical failures are parked only with `always`."""
    if _could_not_undo(state, place, failure):
        # No rule may try it again, nor the default of the triage: only a person can.
        return UNDO_FAILED
    if policy.when == "always":
        return "always"
    if failure.severity == "critical":
        return ""
    if matching_rule(place.spec.rules, failure) is None:
        return "unmatched"
    return "exhausted" if policy.when == "exhausted" else ""


def is_fatal_handler_failure(place: Place, failure: Failure) -> bool:
    """Whether `handler_failure_fatal` applies: the failure is critical and gets neither triage nor a route."""
    return place.spec.handler_failure_fatal and (
        failure.handler_failure is not None or failure.code == "HANDLER_FAILED"
    )


def _is_allowed(place: Place, failure: Failure) -> bool:
    """Whether `continue_on_error` covers the failure: not if its handler failed too, and that is fatal."""
    return place.spec.continue_on_error and not is_fatal_handler_failure(place, failure)


def after_classified(now: DecisionContext, place: Place, fact: e.StepClassified) -> Facts:
    if place.child:
        # `after_triager` goes on when the agent has ended.
        yield from stop_triager(now, place)
    else:
        yield from _follow_decision(now, place)


def _follow_decision(now: DecisionContext, place: Place) -> Facts:
    assert place.climb.ruling is not None and place.failure is not None
    if place.climb.ruling.verdict == "retry":
        yield from schedule(now, place, "classified")
    else:
        yield from _climb(now, place, place.failure, (route,))


def after_triager(now: DecisionContext, place: Place, fact: e.Fact) -> Facts:
    """The agent has ended: apply its decision or leave the step to a person, unless somebody decided meanwhile."""
    if place.status != "pending_failed":
        return
    if not now.may_start(place):
        yield e.StepCancelled(place.key, place.visit, "stopping")
    elif is_decided(place):
        yield from _follow_decision(now, place)
    else:
        yield from decide_or_suggest(now, place, fact)


# -- rung 4: route ------------------------------------------------------------------------------


def route(now: DecisionContext, place: Place, failure: Failure) -> Generator[e.Fact, None, bool]:
    """End the place as failed: a step chooses a failure edge; a command reports to its parent."""
    if is_fatal_handler_failure(place, failure):
        failure = msgspec.structs.replace(failure, severity="critical")
    if place.role != "step":
        yield e.CommandFailed(
            place.key,
            place.parent,
            role=place.role,
            failure=failure,
            index=place.index,
            is_allowed=_is_allowed(place, failure),
        )
        return True
    chosen = _choose_route(now, place, failure)
    if chosen.status != "selected":
        yield e.RungPassed(place.key, "route", chosen.status if chosen.reason == "no_edge" else chosen.reason)
    yield step_failed(now, place, failure, chosen)
    return True


def _choose_route(now: DecisionContext, place: Place, failure: Failure) -> Route:
    if place.key == END:
        return Route("no_route", reason="no_edge")
    if is_fatal_handler_failure(place, failure):
        return Route("no_route", reason="handler_failure_fatal")
    return route_to_program(now.state, place) or failure_route(now.state, place, failure)


def step_failed(now: DecisionContext, place: Place, failure: Failure, chosen: Route) -> e.StepFailed:
    """The fact that ends a failed step, with all edges it takes."""
    if place.key == END:
        return e.StepFailed(END, place.visit, failure, place.attempt)
    is_allowed = _is_allowed(place, failure)
    is_routed = chosen.is_sent
    edge = now.state.graph.arc(place.key, chosen.edge).edge if chosen.edge is not None else None
    taken = _edges_taken(now, place, failure, chosen, is_allowed)
    awaits = is_routed and edge is not None and edge.then is not None
    return e.StepFailed(
        place.key,
        place.visit,
        failure=failure,
        attempt=place.attempt,
        route=chosen,
        taken=taken,
        is_allowed=is_allowed,
        is_final=not awaits and is_last_visit(now.state, place) and not takes_loop(now.state, place.key, taken),
        routed_to_end=not is_routed,
        original_failed_step="" if is_routed else place.key,
    )


def _edges_taken(
    now: DecisionContext, place: Place, failure: Failure, chosen: Route, is_allowed: bool
) -> tuple[int, ...]:
    taken = set(alert_edges(now.state, place, failure))
    if is_fatal_handler_failure(place, failure):
        # No route, but alert edges are still taken.
        return tuple(sorted({*taken, *edges_after_failure(now, place, is_allowed=False, with_loops=True)}))
    if chosen.edge is not None:
        taken.add(chosen.edge)
    if not chosen.is_sent:
        taken.update(edges_after_failure(now, place, is_allowed=is_allowed, with_loops=True))
    elif not takes_loop(now.state, place.key, taken):
        taken.update(edges_after_failure(now, place, is_allowed=False, with_loops=False))
    return tuple(sorted(taken))
