"""The ten invariants ("promises") of the design, as far as a log and a state show them. Each is one function.

An invariant of facts is checked before each entry is recorded: `promise(facts, entry)`. An invariant of the state is
checked after a turn: `promise(state, pending)`. Those of the graph are in `causality`, the last one is in `liveness`.
`RunInvariants` checks them as a log grows; `check` checks a whole log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from mulligan.core.deciding.end_status import parse_end_output
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.clusters.worker_time import RERUNS_AFTER_TIME_MAX
from mulligan.core.model.codec import decode_log, encode_log
from mulligan.core.model.failure import Failure
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import EventSent
from mulligan.core.model.workflow import END, RERUNS_AFTER_LOSS_MAX, Rule, Workflow
from mulligan.core.state.scope import fill_params
from mulligan.core.state.state import STATE_TABLES, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import is_handled
from mulligan.core.turn import fold
from mulligan.ports import RunRecord
from proof.invariants.causality import (
    promise_1_what_is_unhandled_fails_the_run,
    promise_4_a_loop_edge_goes_alone,
    promise_4_a_step_is_entered_for_a_cause,
    promise_4_a_step_is_skipped_for_a_cause,
    promise_4_no_result_is_older_than_what_it_depends_on,
    promise_4_remediations_bring_back_what_they_repaired,
    promise_5_a_retry_is_due_when_its_rule_says,
)
from proof.invariants.liveness import (
    PendingWork,
    promise_10_a_run_has_a_story,
    promise_10_every_place_has_a_waker,
    promise_10_no_step_is_forgotten,
)
from proof.invariants.log_facts import RESULTS, STEP_ENDS, TERMINAL, LogFacts, holds_dropped
from proof.invariants.program_calls import CHECKED, problem_of

_NO_CAUSES: Counter[str] = Counter()


# -- 1: every round reaches exactly one terminal status, through `end`, once -----------------------------------------


def promise_1_one_ending_per_round(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    if isinstance(fact, TERMINAL):
        if fact.round != facts.round:
            raise facts.violation("promise 1", f"round {fact.round} ended, and it is round {facts.round}", entry)
        if facts.end_ended != 1:
            raise facts.violation("promise 1", f"the round ended, and 'end' has ended {facts.end_ended} times", entry)
        if facts.open_visits or facts.open_commands:
            what = sorted(facts.open_visits | facts.open_commands)
            raise facts.violation("promise 1", f"the round ended while {what} had not", entry)
    elif isinstance(fact, e.StepEntered) and fact.step == END:
        if facts.end_entered:
            raise facts.violation("promise 1", f"'end' was entered twice in round {facts.round}", entry)
        if facts.open_visits or facts.undoing:
            busy = str(sorted(facts.open_visits)) if facts.open_visits else f"the undo of {facts.undoing}"
            raise facts.violation("promise 1", f"'end' was entered while {busy} had not ended", entry)


def promise_1_the_status_follows_from_the_round(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, TERMINAL)
    if isinstance(fact, e.RunCancelled) != facts.is_cancelled:
        said = "was" if facts.is_cancelled else "was not"
        raise facts.violation("promise 1", f"an operator's cancel {said} there, and so is {type(fact).__name__}", entry)
    if isinstance(fact, e.RunCompleted) and facts.last_undone_seq:
        raise facts.violation("promise 1", "the run completed, and its work was undone", entry)
    if isinstance(fact, e.RunCompleted) and fact.failed_steps_count and facts.workflow.end.action is None:
        raise facts.violation(
            "promise 1", f"the run completed with {fact.failed_steps_count} unhandled failures", entry
        )


def promise_1_a_run_that_lacks_an_output_is_degraded(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    if isinstance(fact, e.RunCompleted) and facts.without_output and not fact.degraded:
        lacking = sorted(facts.without_output)
        raise facts.violation(
            "promise 1", f"the run is not degraded, and the outputs of {lacking} were not kept", entry
        )


def promise_1_end_returns_a_status_that_a_run_can_have(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.StepCompleted)
    if fact.step == END:
        status = parse_end_output(fact.output).get("status")
        if status not in (None, "completed", "failed"):
            raise facts.violation("promise 1", f"'end' returned the status {status!r}, and has completed", entry)


def promise_1_nothing_follows_the_end(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    is_refused = isinstance(fact, e.WarningRecorded) and fact.failure.code == "CORRECTION_REFUSED"
    if facts.is_over and not is_refused and not isinstance(fact, e.RunRevised | e.RunReopened | e.ReportRefused):
        raise facts.violation("promise 1", f"{type(fact).__name__} came after the round's last event", entry)


def promise_1_every_step_has_ended(state: State, pending: PendingWork) -> None:
    if state.run.status in RUN_ENDED:
        left = [place.key for place in (*state.steps(), state.places[END]) if not place.has_ended]
        if left:
            raise AssertionError(f"promise 1: the run has {state.run.status}, and {left} have not ended")
        unsure = [record.step for record in state.failures if is_handled(state, record) is None]
        if unsure:
            raise AssertionError(f"promise 1: the run is over, and it is unknown whether {unsure} are handled")


# -- 2: at most one accepted result per attempt ----------------------------------------------------------------------


def promise_2_one_result_per_attempt(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, RESULTS)
    if (fact.place, fact.attempt) in facts.results:
        raise facts.violation("promise 2", f"attempt {fact.attempt} of '{fact.place}' has two results", entry)
    if fact.attempt < facts.attempts.get(fact.place, 0):
        raise facts.violation("promise 2", f"attempt {fact.attempt} of '{fact.place}' is not the last one", entry)


def promise_2_an_output_that_was_not_kept_is_no_value(facts: LogFacts, entry: e.Entry) -> None:
    """Something stands for it, and no expression that reads it gives a value."""
    fact = entry.fact
    if isinstance(fact, e.AttemptSucceeded):
        is_dropped = any(one.code == "OUTPUT_TOO_LARGE" and one.severity == "warning" for one in fact.warnings)
        if is_dropped and not holds_dropped(fact.output):
            raise facts.violation(
                "promise 2", f"the output of '{fact.place}' was not kept and is {fact.output!r}", entry
            )
    elif isinstance(fact, e.AttemptFailed):
        if fact.failure.code == "EXPRESSION_FAILED" and "was not kept: " in fact.failure.message:
            raise facts.violation("promise 2", f"'{fact.place}' read an output that was not kept", entry)
    elif holds_dropped(_values_of(fact)):
        raise facts.violation("promise 2", "an output that was not kept was given to a reader", entry)


def _values_of(fact: e.Fact) -> Any:
    """The values of expressions in a fact."""
    if isinstance(fact, e.AttemptScheduled):
        return fact.bindings
    if isinstance(fact, e.MapExpanded):
        return fact.items
    return fact.inputs if isinstance(fact, e.RunStarted) else getattr(fact, "outputs", None)


def promise_2_attempts_count_up(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.AttemptScheduled)
    before = facts.attempts.get(fact.place, 0)
    if fact.attempt <= before:
        raise facts.violation(
            "promise 2", f"attempt {fact.attempt} of '{fact.place}' came after attempt {before}", entry
        )


def promise_2_attempts_start_once(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.AttemptStarted)
    if (fact.place, fact.attempt) in facts.started:
        raise facts.violation("promise 2", f"attempt {fact.attempt} of '{fact.place}' started twice", entry)


def promise_2_a_child_run_is_continued_once(facts: LogFacts, entry: e.Entry) -> None:
    """An attempt after a failed child run goes on with its next round, which no other attempt has asked for."""
    fact = entry.fact
    assert isinstance(fact, e.AttemptStarted)
    command = facts.specs[fact.place]
    if command.action is None or not traits_of(command.action).calls_run:
        return
    step = facts.lineage(fact.place)[-1]
    expected, must = facts.called.expected(fact, command, step, facts.visit_of(fact.place), facts.graph)
    round = None if fact.continues is None else (fact.continues.run_id, fact.continues.round)
    if round in facts.called.asked:
        raise facts.violation("promise 2", f"{round} was continued by {facts.called.asked[round]} before", entry)
    if (must or round is not None) and round != expected:
        attempt = f"attempt {fact.attempt} of '{fact.place}'"
        raise facts.violation("promise 2", f"{attempt} continues {round} in place of {expected}", entry)


# -- 3: retries never exceed the matched rule's budget ---------------------------------------------------------------


def _names_class(rule: Rule, last: Failure) -> bool:
    """Whether the rule names the very class that was raised, under any of its names."""
    return any(
        name in last.exceptions and name.split(".")[-1] == last.exceptions[0].split(".")[-1] for name in rule.exceptions
    )


def promise_3_retries_within_budget(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.RetryScheduled)
    spec = facts.specs[fact.place]
    rule = spec.rules[fact.rule]
    before = facts.granted.get(fact.place, {}).get(fact.rule, 0)
    if fact.number != before + 1:
        raise facts.violation("promise 3", f"retry {fact.number} of '{fact.place}' came after retry {before}", entry)
    if fact.number > rule.max_retries:
        raise facts.violation(
            "promise 3", f"retry {fact.number} of '{fact.place}', and {rule.max_retries} are the limit", entry
        )
    last = facts.last_failure.get(fact.place)
    if last is not None and last.is_fatal and last.code not in rule.codes and not _names_class(rule, last):
        raise facts.violation("promise 3", f"{last.code} is fatal, and no rule of '{fact.place}' names it", entry)
    tries = facts.tries.get(fact.place, 0)
    for most in (spec.max_attempts, rule.max_attempts):
        if most is not None and tries >= most:
            raise facts.violation("promise 3", f"'{fact.place}' has had {tries} tries of {most}", entry)
    if spec.deadline is not None and fact.due >= facts.entered_at[fact.place] + timedelta(seconds=spec.deadline):
        raise facts.violation("promise 3", f"the retry of '{fact.place}' is due after its deadline", entry)


def promise_3_reruns_within_budget(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.AttemptScheduled)
    before = facts.causes.get(fact.place, _NO_CAUSES)[fact.cause]
    if fact.cause == "entered" and fact.place in facts.steps and _is_beyond_limit(facts, fact.place):
        raise facts.violation("promise 3", f"'{fact.place}' has had its visits, and this one is tried", entry)
    if fact.cause == "lost" and before >= RERUNS_AFTER_LOSS_MAX:
        raise facts.violation("promise 3", f"'{fact.place}' runs again after {before + 1} losses", entry)
    if fact.cause == "time" and before >= RERUNS_AFTER_TIME_MAX:
        raise facts.violation("promise 3", f"'{fact.place}' runs again after {before + 1} ends of workers", entry)
    handler = facts.specs[fact.place].on_failure
    if fact.cause == "rerun" and (handler is None or before >= handler.rerun):
        raise facts.violation("promise 3", f"the handler of '{fact.place}' has granted {before} reruns already", entry)


def promise_3_the_end_of_a_worker_spends_nothing(facts: LogFacts, entry: e.Entry) -> None:
    """What its worker has interrupted runs again; it fails only after the time of several workers was too short."""
    fact = entry.fact
    assert isinstance(fact, e.AttemptFailed)
    ended = facts.ended_by_worker.get((fact.place, fact.attempt))
    if isinstance(ended, e.AttemptInterrupted):
        is_free = ended.life_seconds is None or facts.time_ends[fact.place] <= 1
    else:
        spec = facts.specs[fact.place]
        reruns = spec.on_lost == "rerun" and not any("WORKER_LOST" in rule.codes for rule in spec.rules)
        is_free = ended is not None and ended.ending == "free" and reruns
    if is_free:
        raise facts.violation("promise 3", f"the worker of '{fact.place}' has ended, and that counts as a try", entry)


def promise_3_agents_stay_within_their_budget(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.AttemptScheduled)
    if facts.is_agent(fact.place):
        for spent in facts.spending.exhausted_limits(facts.lineage(fact.place)[-1]):
            raise facts.violation("promise 3", f"the agent '{fact.place}' is called, and {spent} are spent", entry)


def promise_3_tools_stay_within_the_budget_of_their_agent(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.ToolCalled)
    for spent in facts.spending.exceeded_tool_limits(facts.lineage(fact.place)[-1]) if fact.position >= 0 else ():
        raise facts.violation("promise 3", f"a tool of '{fact.place}' is called, and {spent} are spent", entry)


def promise_2_what_agents_spend_is_counted_once(state: State, facts: LogFacts) -> None:
    """The sums of a run are those of its log. Those of its child runs, and of a run that it continues, are added."""
    started = facts.log[0].fact if facts.log else None
    is_alone = isinstance(started, e.RunStarted) and started.forked_from is None and not state.workflow.children
    spent, tokens = state.run.spent, facts.spending.tokens[""]
    if is_alone and (spent.tokens or 0, spent.tool_calls) != (tokens, facts.spending.tool_calls[""]):
        counted = f"{tokens} tokens and {facts.spending.tool_calls['']} tool calls"
        raise AssertionError(f"promise 2: {counted} were spent, and {spent.tokens} and {spent.tool_calls} are counted")


def promise_2_a_finished_call_is_not_made_again(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.ToolCalled | e.ToolAnswered)
    turn = facts.turns.get(fact.place)
    if turn is None:
        raise facts.violation("promise 2", f"no model of '{fact.place}' has asked for '{fact.tool}'", entry)
    if (fact.place, turn, fact.id) in facts.answered_calls:
        raise facts.violation("promise 2", f"call {fact.number} of '{fact.place}' has its answer already", entry)
    if isinstance(fact, e.ToolAnswered) and facts.open_calls.get(fact.place) != (fact.id, fact.number):
        raise facts.violation("promise 2", f"call {fact.number} of '{fact.place}' is answered, and is not open", entry)


def _is_beyond_limit(facts: LogFacts, step: str) -> bool:
    return facts.visits_in_round[step] > facts.steps[step].max_visits


def promise_3_visits_within_budget(facts: LogFacts, entry: e.Entry) -> None:
    """One more than max_visits: the visit that fails with LOOP_LIMIT."""
    fact = entry.fact
    assert isinstance(fact, e.StepEntered)
    if _is_beyond_limit(facts, fact.step):
        limit = facts.steps[fact.step].max_visits
        raise facts.violation("promise 3", f"'{fact.step}' is visited again, and {limit} visits are the limit", entry)


def promise_3_nothing_runs_in_the_visit_beyond_the_last(facts: LogFacts, entry: e.Entry) -> None:
    """The visit after max_visits fails with LOOP_LIMIT: no rule, handler, person or timeout gives it an attempt."""
    fact = entry.fact
    assert isinstance(fact, e.AttemptScheduled)
    if fact.place in facts.steps and _is_beyond_limit(facts, fact.place):
        limit = facts.steps[fact.place].max_visits
        raise facts.violation("promise 3", f"'{fact.place}' runs in visit {limit + 1} of {limit}", entry)


def promise_3_triage_retries_by_itself_once(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.StepClassified)
    if fact.is_default and fact.verdict == "retry" and facts.causes.get(fact.step, _NO_CAUSES)["default"]:
        raise facts.violation("promise 3", f"'{fact.step}' was not classified, and is retried once more", entry)


def promise_3_agents_decide_within_their_limits(facts: LogFacts, entry: e.Entry) -> None:
    """A decision of a triager is what it answered about this attempt, and within the limits of its policy."""
    fact = entry.fact
    assert isinstance(fact, e.StepClassified)
    if not fact.is_triagers:
        return
    policy = facts.steps[fact.step].triage
    agent = policy.agent if policy is not None else None
    output = facts.answers.get((fact.step, fact.attempt))
    answer = output.get("json") if isinstance(output, dict) else None
    if agent is None or not isinstance(answer, dict):
        raise facts.violation("promise 3", f"nobody asked an agent about '{fact.step}'", entry)
    if (fact.verdict, fact.confidence, fact.by) != (
        answer.get("verdict"),
        answer.get("confidence"),
        f"agent:{agent.provider}",
    ):
        raise facts.violation("promise 3", f"the agent of '{fact.step}' answered something else", entry)
    given = answer.get("memory") or 0
    if (
        fact.verdict not in agent.may
        or (fact.confidence or 0) < agent.min_confidence
        or given > (agent.memory_max or 0)
    ):
        raise facts.violation("promise 3", f"the agent of '{fact.step}' may not decide that", entry)
    if facts.agent_decisions >= agent.max_per_run:
        raise facts.violation("promise 3", f"agents have decided {agent.max_per_run} times in this run", entry)


def promise_3_suggestions_are_about_parked_steps(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.TriageSuggested)
    if fact.step not in facts.parked:
        raise facts.violation("promise 3", f"a suggestion about '{fact.step}', which is not parked", entry)


# -- 4: script, handler, route, undo and `end` start once per cause --------------------------------------------------


def promise_4_visits_follow_each_other(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    if isinstance(fact, e.StepEntered):
        before = facts.visits.get(fact.step, 0)
        if fact.step in facts.open_visits or fact.visit != before + 1:
            raise facts.violation("promise 4", f"visit {fact.visit} of '{fact.step}' follows visit {before}", entry)
    elif isinstance(fact, e.StepCompleted | e.StepFailed) and fact.step not in facts.open_visits:
        raise facts.violation("promise 4", f"visit {fact.visit} of '{fact.step}' ended twice", entry)


def promise_4_commands_start_once(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.CommandEntered)
    if fact.place in facts.open_commands or (fact.role != "do" and fact.place in facts.entered_once):
        raise facts.violation("promise 4", f"'{fact.place}' was entered twice", entry)
    if fact.role == "script":
        reserved = facts.reserved.get(fact.parent)
        if reserved is None or not reserved.has_script:
            raise facts.violation("promise 4", f"the script of '{fact.parent}' runs for no retry", entry)
        if (fact.parent, reserved.attempt) in facts.scripts_run:
            raise facts.violation("promise 4", f"the script of '{fact.parent}' runs twice for one retry", entry)
    if fact.role == "handler" and fact.parent not in facts.handlers:
        raise facts.violation("promise 4", f"'{fact.place}' runs outside of its handler", entry)
    if fact.role == "triager" and fact.parent not in facts.parked:
        raise facts.violation("promise 4", f"an agent is asked about '{fact.parent}', which is not parked", entry)
    if fact.role == "undo" and facts.undoing is None:
        raise facts.violation("promise 4", f"'{fact.place}' runs although nothing is being undone", entry)


def promise_4_handlers_start_once(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    if isinstance(fact, e.HandlerStarted):
        if fact.place in facts.handlers or (fact.place, fact.attempt) in facts.handled:
            raise facts.violation("promise 4", f"the handler of '{fact.place}' started twice for one failure", entry)
    elif isinstance(fact, e.HandlerSucceeded | e.HandlerFailed) and fact.place not in facts.handlers:
        raise facts.violation("promise 4", f"a handler of '{fact.place}' ended that did not run", entry)


def promise_4_undo_goes_back_in_order(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.UndoStarted)
    visit = (fact.step, fact.visit)
    if facts.undoing is not None:
        raise facts.violation("promise 4", f"the undo of {visit} started while {facts.undoing} was being undone", entry)
    if visit not in facts.completed or visit in facts.undone:
        raise facts.violation("promise 4", f"{visit} is undone twice, or did not complete", entry)
    if facts.undo_failed.get(fact.step, {}).get(fact.visit) == facts.round:
        raise facts.violation("promise 4", f"the undo of {visit} failed, and is tried again in the same round", entry)
    # A round of a program that is stopped has begun with the calls that it drops, and goes on with the others.
    is_next_part = facts.program.is_dropped(facts.last_undone_step) and not facts.program.is_dropped(fact.step)
    if facts.last_undone_seq and facts.completed[visit] > facts.last_undone_seq and not is_next_part:
        raise facts.violation("promise 4", f"{visit} completed after what was undone before it", entry)


def promise_4_what_could_not_be_undone_is_not_done_again_unasked(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    if isinstance(fact, e.RunReopened):
        failed = [step for step in fact.put_back if facts.undo_failed.get(step)]
        again = [step for step in failed if facts.steps[step].triage is None]
        if again and not fact.is_forced:
            raise facts.violation("promise 4", f"{again} run again unasked, and their undo had failed", entry)
    elif isinstance(fact, e.AttemptScheduled) and fact.place in facts.undecided:
        raise facts.violation("promise 4", f"'{fact.place}' runs again unasked, and its undo had failed", entry)
    elif isinstance(fact, e.AttemptScheduled) and fact.cause in ("retry", "rerun"):
        last = facts.last_failure.get(fact.place)
        action = facts.specs[fact.place].action if fact.place in facts.specs else None
        if last is not None and action is not None and traits_of(action).calls_run and "undo_failed" in last.details:
            raise facts.violation("promise 4", f"'{fact.place}' is tried again, and an undo had failed in it", entry)


def promise_4_loops_fire_once(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.LoopFired)
    if (fact.step, fact.edge) not in facts.loops:
        raise facts.violation("promise 4", f"the loop of '{fact.step}' fired and was not taken", entry)


def promise_4_every_failure_says_where_it_went(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.StepFailed)
    route = fact.route
    is_in_program = route.status == "selected" and route.edge is None and route.to == facts.graph.program
    if not is_in_program and route.status == "selected" and (route.edge is None or route.edge not in fact.taken):
        raise facts.violation("promise 4", f"'{fact.step}' chose a route and did not take it", entry)
    is_routed = route.status == "selected" and route.to != END
    if is_routed == fact.routed_to_end and fact.step != END:
        raise facts.violation("promise 4", f"'{fact.step}' went to {route.to} and to 'end'", entry)


# -- 5: no attempt starts while its script, triage or delay is open --------------------------------------------------


def promise_5_nothing_starts_early(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.AttemptScheduled)
    place = fact.place
    if place in facts.open_scripts:
        raise facts.violation("promise 5", f"'{place}' is tried again while its recovery script runs", entry)
    if place in facts.parked:
        raise facts.violation("promise 5", f"'{place}' is tried again while it is parked", entry)
    reserved = facts.reserved.get(place)
    if reserved is not None and reserved.due > entry.at:
        raise facts.violation("promise 5", f"'{place}' is tried again before its delay is over", entry)


# -- 6: a stopped run never starts a step again ----------------------------------------------------------------------


def promise_6_a_stopped_run_starts_nothing(facts: LogFacts, entry: e.Entry) -> None:
    if facts.stop is None:
        return
    fact: Any = entry.fact
    place = fact.place if hasattr(fact, "place") else fact.step
    if not _may_still_start(facts, place, fact):
        raise facts.violation("promise 6", f"{type(fact).__name__} for '{place}' in a run that stops", entry)


def _may_still_start(facts: LogFacts, place: str, fact: e.Fact) -> bool:
    """Cleanup handlers, undo and `end`; with `now` no new cleanup and no new undo."""
    if isinstance(fact, e.HandlerStarted) and fact.strategy == "cleanup" and not facts.is_now:
        return True
    if isinstance(fact, e.CommandEntered):
        if fact.role == "undo" or (fact.role == "handler" and _is_cleanup(facts, fact.parent)):
            return True
        place = fact.parent
    for above in facts.lineage(place):
        if above == END or facts.roles.get(above) == "undo":
            return True
        if facts.roles.get(above) == "handler" and _is_cleanup(facts, facts.parents[above]):
            return True
    return False


def _is_cleanup(facts: LogFacts, place: str) -> bool:
    handler = facts.specs[place].on_failure
    return handler is not None and handler.strategy == "cleanup"


def promise_6_nothing_starts_after_the_time_of_the_run(facts: LogFacts, entry: e.Entry) -> None:
    fact: Any = entry.fact
    if facts.due is None or facts.stop is not None or entry.at <= facts.due or facts.is_over:
        return
    if isinstance(fact, e.AttemptStarted) and not entry.caused_by:
        # It was leased in time, and the run has heard of it late.
        return
    place = fact.place if hasattr(fact, "place") else fact.step
    if not _may_still_start(facts, place, fact):
        raise facts.violation("promise 6", f"{type(fact).__name__} for '{place}' after the time of the run", entry)


def promise_6_now_means_now(facts: LogFacts, entry: e.Entry) -> None:
    if facts.is_now:
        raise facts.violation("promise 6", "an undo started in a run that was cancelled at once", entry)


def promise_6_no_route_in_a_stopped_run(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.StepFailed)
    if facts.stop is not None and fact.step != END and (fact.route.status != "skipped_terminal" or fact.taken):
        raise facts.violation("promise 6", f"'{fact.step}' was routed in a run that stops", entry)


# -- 7: no lease outlives its holder ---------------------------------------------------------------------------------


def promise_7_items_keep_to_their_slots(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.ItemEntered)
    policy, running = facts.steps[fact.parent].map, facts.items_running[fact.parent]
    if fact.place in facts.open_commands:
        raise facts.violation("promise 7", f"'{fact.place}' was entered twice", entry)
    if policy is not None and policy.max_parallel is not None and running >= policy.max_parallel:
        raise facts.violation("promise 7", f"'{fact.place}' was entered while {running} items ran", entry)


def promise_7_no_task_outlives_its_run(state: State, pending: PendingWork) -> None:
    if state.run.status in RUN_ENDED and (pending.tasks or pending.children):
        left = sorted({*pending.tasks, *pending.children})
        raise AssertionError(f"promise 7: the run has {state.run.status}, and {left} are still queued")


def promise_7_every_queued_task_has_a_place(state: State, queued: Iterable[tuple[str, int]]) -> None:
    """At rest, a task that is not leased belongs to a place that waits for it."""
    for key, attempt in queued:
        place = state.places.get(key)
        if place is None or place.status != "ready" or place.attempt != attempt:
            stands = "is gone" if place is None else f"is {place.status} at attempt {place.attempt}"
            raise AssertionError(f"promise 7: attempt {attempt} of '{key}' is queued, and '{key}' {stands}")


# -- 8: the log replays to the same state ----------------------------------------------------------------------------


def promise_8_the_log_is_a_log(facts: LogFacts, entry: e.Entry) -> None:
    if entry.seq != len(facts.log) + 1:
        raise facts.violation("promise 8", f"entry {entry.seq} is in place {len(facts.log) + 1}", entry)
    if not 0 <= entry.caused_by < entry.seq:
        raise facts.violation(
            "promise 8", f"entry {entry.seq} is caused by {entry.caused_by}, which is not before", entry
        )
    if facts.log and entry.at < facts.log[-1].at:
        raise facts.violation("promise 8", "time went back", entry)


def promise_8_the_log_can_be_written_down(log: Sequence[e.Entry]) -> None:
    for entry, read in zip(log, decode_log(encode_log(log)), strict=True):
        if entry != read:
            raise AssertionError(f"promise 8: entry {entry.seq} is\n  {entry}\nand is read back as\n  {read}")


def promise_8_the_log_replays(state: State, log: Iterable[e.Entry], first: Graph | None = None) -> None:
    """`first` is the definition with which the run was started, if a corrected one replaced it."""
    graph = first or state.graph
    _expect_same(state, fold(graph.workflow, log, graph))


def promise_8_the_tables_say_what_the_log_says(state: State, restored: State) -> None:
    """`state` is the fold of the log, `restored` is what the store's rows were read back as."""
    _expect_same(restored, state)


def promise_8_the_line_says_what_the_log_says(state: State, record: RunRecord) -> None:
    """A run without an event has not begun: its row says that it runs."""
    run = state.run
    expected = (run.status if run.seq else "running", run.round if run.seq else 1, run.seq, run.degraded, run.reason)
    line = (record.status, record.round, record.seq, record.degraded, record.reason)
    if line != expected:
        raise AssertionError(f"promise 8: run {record.run_id} is listed as {line}, and its log says {expected}")


def _expect_same(live: State, expected: State) -> None:
    for table in STATE_TABLES:
        ours, theirs = getattr(live, table), getattr(expected, table)
        if ours != theirs:
            raise AssertionError(f"promise 8: '{table}' is\n  {_difference(ours, theirs)}")


def _difference(live: Any, expected: Any) -> str:
    if isinstance(live, dict) and isinstance(expected, dict):
        keys = [key for key in {**live, **expected} if live.get(key) != expected.get(key)]
        live, expected = {key: live.get(key) for key in keys}, {key: expected.get(key) for key in keys}
    return f"{live}\nand the log says\n  {expected}"


def promise_8_a_fork_keeps_what_was_done(facts: LogFacts, entry: e.Entry, original: LogFacts) -> None:
    """For the run that it was forked from, which may have continued since: what was never done runs again."""
    assert isinstance(entry.fact, e.RunStarted)
    for kept in entry.fact.kept:
        if kept.step not in original.done:
            outcome = original.outcomes.get(kept.step, "not there")
            raise facts.violation("promise 8", f"the fork keeps '{kept.step}', which was {outcome}", entry)


# -- 9: a secret appears nowhere -------------------------------------------------------------------------------------


def promise_9_no_secret_is_logged(log: Sequence[e.Entry], secret: str) -> None:
    plain = secret.encode()
    for entry in log if plain in msgspec.json.encode(log) else ():
        if plain in msgspec.json.encode(entry):
            raise AssertionError(f"promise 9: a secret is in the log (seq {entry.seq})\n  {type(entry.fact).__name__}")


# -- 16: programs ----------------------------------------------------------------------------------------------------


def promise_16_a_call_is_made_once_and_its_end_is_told_in_the_order_of_the_log(facts: LogFacts, entry: e.Entry) -> None:
    if problem := problem_of(facts.program, entry.fact):
        raise facts.violation("promise 16", problem, entry)


# -- all invariants --------------------------------------------------------------------------------------------------

FactPromise = Callable[[LogFacts, e.Entry], None]
StatePromise = Callable[[State, PendingWork], None]

# -- 17: an event is taken once, in the order of arrival -------------------------------------------------------------


def promise_17_an_event_counts_once(facts: LogFacts, entry: e.Entry) -> None:
    assert isinstance(entry.fact, e.EventReceived)
    if entry.fact.key and entry.fact.key in facts.event_keys:
        raise facts.violation("promise 17", f"a second event has the key '{entry.fact.key}'", entry)


def promise_17_an_event_is_taken_once_and_in_order(facts: LogFacts, entry: e.Entry) -> None:
    fact = entry.fact
    assert isinstance(fact, e.EventDelivered)
    free = facts.free_events[fact.name]
    if fact.event not in free and fact.event not in facts.maybe_free:
        raise facts.violation("promise 17", f"event {fact.event} of '{fact.name}' is not there to be taken", entry)
    if free and free[0] < fact.event:
        raise facts.violation("promise 17", f"event {free[0]} of '{fact.name}' came before {fact.event}", entry)


def promise_17_what_is_accepted_is_there(log: Sequence[e.Entry], report: EventSent, *, is_accepted: bool) -> None:
    """An event whose sender was told so is in the log, by itself or by the one before with its key; no other is."""
    events = [entry.fact for entry in log if isinstance(entry.fact, e.EventReceived)]
    own = [one for one in events if one.by == report.by]
    before = [one for one in events if report.key and (one.key, one.name) == (report.key, report.name)]
    found = [*own, *before] if is_accepted else own
    if len(own) > 1 or bool(found) != is_accepted:
        raise AssertionError(
            f"promise 17: {report} was {'accepted' if is_accepted else 'refused'}, and the run has {own}"
        )


def promise_17_what_waits_for_an_event_gets_it(state: State, pending: PendingWork) -> None:
    """Nothing waits for an event that is there."""
    free = {one.name for one in state.received.values() if not one.place}
    for place in state.places.values() if free else ():
        if traits_of(place.spec.action).awaits_event and place.status == "running" and not place.phase:
            name = fill_params(place.spec.action, place.bindings)["event"] if place.spec.action else ""
            if name in free:
                raise AssertionError(f"promise 17: '{place.key}' waits for '{name}', which is there")


_STARTS = (
    e.StepEntered,
    e.AttemptScheduled,
    e.AttemptStarted,
    e.RetryScheduled,
    e.HandlerStarted,
    e.CommandEntered,
    e.ItemEntered,
    e.StepParked,
    e.StepPutBack,
    e.StepReplaced,
    e.LoopTaken,
    e.LoopFired,
)

FACT_PROMISES: dict[FactPromise, tuple[type[e.Fact], ...]] = {
    promise_8_the_log_is_a_log: e.FACTS,
    promise_1_nothing_follows_the_end: e.FACTS,
    promise_1_one_ending_per_round: (*TERMINAL, e.StepEntered),
    promise_1_the_status_follows_from_the_round: TERMINAL,
    promise_1_what_is_unhandled_fails_the_run: TERMINAL,
    promise_1_a_run_that_lacks_an_output_is_degraded: TERMINAL,
    promise_1_end_returns_a_status_that_a_run_can_have: (e.StepCompleted,),
    promise_2_an_output_that_was_not_kept_is_no_value: (
        e.AttemptSucceeded,
        e.AttemptFailed,
        e.AttemptScheduled,
        e.MapExpanded,
        e.RunStarted,
        *TERMINAL,
    ),
    promise_2_one_result_per_attempt: RESULTS,
    promise_2_attempts_count_up: (e.AttemptScheduled,),
    promise_2_attempts_start_once: (e.AttemptStarted,),
    promise_2_a_child_run_is_continued_once: (e.AttemptStarted,),
    promise_2_a_finished_call_is_not_made_again: (e.ToolCalled, e.ToolAnswered),
    promise_3_tools_stay_within_the_budget_of_their_agent: (e.ToolCalled,),
    promise_3_retries_within_budget: (e.RetryScheduled,),
    promise_3_reruns_within_budget: (e.AttemptScheduled,),
    promise_3_the_end_of_a_worker_spends_nothing: (e.AttemptFailed,),
    promise_3_agents_stay_within_their_budget: (e.AttemptScheduled,),
    promise_3_visits_within_budget: (e.StepEntered,),
    promise_3_nothing_runs_in_the_visit_beyond_the_last: (e.AttemptScheduled,),
    promise_3_triage_retries_by_itself_once: (e.StepClassified,),
    promise_3_agents_decide_within_their_limits: (e.StepClassified,),
    promise_3_suggestions_are_about_parked_steps: (e.TriageSuggested,),
    promise_4_visits_follow_each_other: (e.StepEntered, *STEP_ENDS),
    promise_4_a_step_is_entered_for_a_cause: (e.StepEntered,),
    promise_4_a_step_is_skipped_for_a_cause: (e.StepSkipped,),
    promise_4_commands_start_once: (e.CommandEntered,),
    promise_4_handlers_start_once: (e.HandlerStarted, e.HandlerSucceeded, e.HandlerFailed),
    promise_4_undo_goes_back_in_order: (e.UndoStarted,),
    promise_4_what_could_not_be_undone_is_not_done_again_unasked: (e.RunReopened, e.AttemptScheduled),
    promise_4_loops_fire_once: (e.LoopFired,),
    promise_4_a_loop_edge_goes_alone: (e.StepCompleted,),
    promise_4_remediations_bring_back_what_they_repaired: TERMINAL,
    promise_4_no_result_is_older_than_what_it_depends_on: TERMINAL,
    promise_4_every_failure_says_where_it_went: (e.StepFailed,),
    promise_5_nothing_starts_early: (e.AttemptScheduled,),
    promise_5_a_retry_is_due_when_its_rule_says: (e.RetryScheduled,),
    promise_6_a_stopped_run_starts_nothing: _STARTS,
    promise_6_nothing_starts_after_the_time_of_the_run: _STARTS,
    promise_6_now_means_now: (e.UndoStarted,),
    promise_7_items_keep_to_their_slots: (e.ItemEntered,),
    promise_6_no_route_in_a_stopped_run: (e.StepFailed,),
    promise_17_an_event_counts_once: (e.EventReceived,),
    promise_17_an_event_is_taken_once_and_in_order: (e.EventDelivered,),
    promise_16_a_call_is_made_once_and_its_end_is_told_in_the_order_of_the_log: CHECKED,
}
STATE_PROMISES: tuple[StatePromise, ...] = (
    promise_1_every_step_has_ended,
    promise_10_every_place_has_a_waker,
    promise_10_no_step_is_forgotten,
    promise_17_what_waits_for_an_event_gets_it,
)

_ASKED: dict[type[e.Fact], tuple[FactPromise, ...]] = {
    kind: tuple(promise for promise, kinds in FACT_PROMISES.items() if kind in kinds) for kind in e.FACTS
}


class RunInvariants:
    """Check every invariant as a log grows."""

    def __init__(self, workflow: Workflow, graph: Graph | None = None) -> None:
        self.facts = LogFacts(workflow, graph)
        self.first = self.facts.graph

    def check_entry(self, entry: e.Entry) -> None:
        """Check one more entry of the log."""
        for promise in _ASKED[type(entry.fact)]:
            promise(self.facts, entry)
        self.facts.record(entry)

    def check_at_rest(self, state: State, pending: PendingWork) -> None:
        """Check the state after a turn, with an empty inbox."""
        for promise in STATE_PROMISES:
            promise(state, pending)

    def check_finished(self, state: State, pending: PendingWork) -> None:
        """Check the end of a history: everything was reported, and nothing may be left."""
        promise_7_no_task_outlives_its_run(state, pending)
        promise_8_the_log_can_be_written_down(self.facts.log)
        promise_8_the_log_replays(state, self.facts.log, self.first)
        promise_2_what_agents_spend_is_counted_once(state, self.facts)
        promise_10_a_run_has_a_story(self.facts.log)


def check(log: Iterable[e.Entry], state: State, first: Workflow | None = None) -> None:
    """Check every invariant that a log and its state can show; `first` as for `promise_8_the_log_replays`."""
    promises = RunInvariants(first or state.workflow)
    for entry in log:
        promises.check_entry(entry)
    promise_1_every_step_has_ended(state, PendingWork())
    promise_8_the_log_can_be_written_down(promises.facts.log)
    promise_8_the_log_replays(state, promises.facts.log, promises.first)
