"""The story of a run in sentences, from its events alone: one line per fact that matters to a person.

`StoryWriter` remembers earlier facts, so that a sentence can name the rule that matched, the handled failure, and
why a step was skipped. `phrases` has the common phrases; `edge_reasons` explains why edges were not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.deciding.conditions import describe_rule, matching_rule
from mulligan.core.deciding.workers.adjustment import CAPS
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.agents.spending import format_raised_budgets
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.text.formatting import format_duration, format_time_until, pluralize, quote_names, single_line
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import END, RERUNS_AFTER_LOSS_MAX, Command, Rule, Workflow
from mulligan.history.called_steps import line_text, where_text
from mulligan.history.edge_reasons import describe_route, edges_after_failure, edges_after_success
from mulligan.history.phrases import (
    describe_adjustment,
    describe_cap,
    describe_degraded,
    describe_failure,
    describe_interruption,
    describe_lost_worker,
    describe_suggestion,
    failure_label,
    last_lines,
    up_to_date_since,
)
from mulligan.history.story_memory import StoryMemory
from mulligan.history.tool_phrases import session_text, tool_answer_text, tool_call_text

Tone = Literal["plain", "good", "bad", "try", "wait"]
# The end of the key of a question to the model of an agent.
_QUESTION = lazy_regex(r"\.model@\d+\.\d+$")
# The longest part of a command's text that a sentence quotes.
COMMAND_CHARS_MAX = 40


class StoryLine(msgspec.Struct, frozen=True):
    """One sentence about one place. The tone decides its colour."""

    at: datetime
    place: str
    text: str
    tone: Tone = "plain"
    seq: int = 0
    # Shown by `explain`, and not while a run is driven.
    is_detail: bool = False
    # It repeats all of the line before it, which can be left out.
    is_whole: bool = False
    # The child run that was started or continued here, 0 if none was; and its round.
    child_run_id: int = 0
    child_round: int = 1
    # The last lines that a failed attempt wrote.
    tail: tuple[str, ...] = ()
    # The place as people know it, if that is not its key: `load[west]`.
    name: str = ""
    # A call of a program that completed, and of which there is no more to say: the line that made it, `nightly.py:31`.
    called_at: str = ""

    @property
    def shown_place(self) -> str:
        """The place as people know it; "" if the line is about the run."""
        return self.name or self.place


# Its place, text and tone.
_Sentence = tuple[str, str, Tone]


class StoryWriter:
    """Writes the story of one run, entry by entry; with details, also the lines that only `explain` shows.

    `memory`: of the entries before, if the first entry of the log is not the first one to be written.
    """

    def __init__(
        self,
        workflow: Workflow | None = None,
        children: Mapping[tuple[str, int], int] | None = None,
        *,
        has_details: bool = True,
        memory: StoryMemory | None = None,
    ) -> None:
        self.memory = memory or StoryMemory(workflow, children)
        self.has_details = has_details
        self._details: dict[type[e.Fact], _Details] = _DETAILS if has_details else {}
        # The place and time of the last line, if it is about a failed attempt: the end of its step may repeat it.
        self._attempt: tuple[str, datetime] | None = None

    def lines_for(self, entry: e.Entry) -> list[StoryLine]:
        """The sentences for an entry; most entries have none."""
        fact: Any = entry.fact
        kind = type(fact)
        rule, details = _SENTENCES.get(kind), self._details.get(kind)
        lines: list[StoryLine] = []
        if rule is not None and (sentence := rule(self, fact, entry.at)):
            lines.append(self._line(entry, sentence))
        if details is not None:
            lines += [
                StoryLine(
                    at=entry.at,
                    place=place,
                    text=single_line(text),
                    tone=tone,
                    seq=entry.seq,
                    is_detail=True,
                    name=self.memory.name_of(place),
                    called_at=line_text(fact) if kind is e.StepRan else "",
                )
                for place, text, tone in details(self, fact, entry.at)
            ]
        self.memory.update(fact)
        return lines

    def _line(self, entry: e.Entry, sentence: _Sentence) -> StoryLine:
        fact: Any = entry.fact
        place, text, tone = sentence
        if type(fact) is e.StepCompleted:
            # Nearly all lines of a large run: nothing of what follows is about it.
            self._attempt = None
            called_at = self._called_at(fact, text)
            return StoryLine(entry.at, place, single_line(text), tone, entry.seq, called_at=called_at)
        is_whole = self._is_whole(fact, entry.at)
        is_started = isinstance(fact, e.AttemptStarted)
        has_tail = isinstance(fact, e.AttemptFailed) or is_whole
        self._attempt = (place, entry.at) if isinstance(fact, e.AttemptFailed) else None
        return StoryLine(
            at=entry.at,
            place=place,
            text=single_line(text),
            tone=tone,
            seq=entry.seq,
            is_whole=is_whole,
            child_run_id=self.memory.child_of(fact) if is_started else 0,
            child_round=fact.continues.round if is_started and fact.continues is not None else 1,
            tail=last_lines(fact.failure) if has_tail else (),
            name=self.memory.name_of(place),
        )

    def _called_at(self, fact: e.StepCompleted, text: str) -> str:
        call = self.memory.call(fact.step) if self.has_details else None
        return line_text(call) if call is not None and text == f"completed{_called(self, fact.step)}" else ""

    def _is_whole(self, fact: e.Fact, at: datetime) -> bool:
        """Whether a step or item failed at its only attempt, so that its line repeats that of the attempt."""
        if not isinstance(fact, e.StepFailed | e.ItemFailed) or self._attempt is None or self._attempt[1] != at:
            return False
        name = fact.step if isinstance(fact, e.StepFailed) else fact.place
        return self._attempt[0] == name or self._attempt[0].startswith(f"{name}.")

    def describe_final(self, fact: Any, name: str, at: datetime) -> str:
        """The failure that ends a place: only its label if an earlier line describes it."""
        last = self.memory.failure(name)
        is_known = last is not None and last.message == fact.failure.message and last.code == fact.failure.code
        is_short = is_known and not self._is_whole(fact, at)
        return failure_label(fact.failure) if is_short else describe_failure(fact.failure)


def story(
    entries: Iterable[e.Entry],
    workflow: Workflow | None = None,
    children: Mapping[tuple[str, int], int] | None = None,
) -> Iterator[StoryLine]:
    """All lines of a story, without those that the next line repeats."""
    writer, last = StoryWriter(workflow, children), None
    for entry in entries:
        for line in writer.lines_for(entry):
            if last is not None and not line.is_whole:
                yield last
            last = line
    if last is not None:
        yield last


# -- the run ---------------------------------------------------------------------------------------------------------


def _forked(fact: e.RunStarted) -> _Sentence:
    if fact.forked_at:
        return "", f"events 1 to {fact.forked_at:,} happened in run {fact.forked_from}, which was forked there", "plain"
    return "", f"forked from run {fact.forked_from}{_by(fact)}", "plain"


def _stopping(writer: StoryWriter, fact: e.RunStopping, at: datetime) -> _Sentence | None:
    if fact.correction is not None:
        return "", f"stopping, to go on with a corrected program{_by(fact)}", "try"
    cause = {"cancelled": f"cancelled{_by(fact)}", "failed_fast": f"fail-fast: {fact.reason}"}.get(fact.cause)
    more = f"; {pluralize(fact.not_begun, 'step')} that had not begun cancelled" if fact.not_begun else ""
    return "", f"stopping{' immediately' if fact.now else ''}: {cause or fact.reason}{more}", "bad"


def _revised(writer: StoryWriter, fact: e.RunRevised, at: datetime) -> _Sentence | None:
    changes = [f"changed {quote_names(list(fact.changed))}"] if fact.changed else []
    changes += [f"added {quote_names(fact.added)}"] if fact.added else []
    changes += [f"removed {quote_names(fact.removed)}"] if fact.removed else []
    changes += [f"changed workflow settings: {', '.join(fact.settings)}"] if fact.settings else []
    what_changed = f": {'; '.join(changes)}" if changes else ""
    return "", f"workflow corrected to version {fact.version}{_by(fact)}{what_changed}", "try"


def _reopened(writer: StoryWriter, fact: e.RunReopened, at: datetime) -> _Sentence | None:
    again = quote_names(fact.put_back)
    if fact.indexes:
        again = f"{pluralize(len(fact.indexes), 'item')} of '{fact.from_step}'"
    budgets = format_raised_budgets(fact.budgets).replace(", ", "; ", 1)
    running = f"; running again{' by force' if fact.is_forced else ''}: {again}" if again else ""
    kept = "; completed steps keep their results" if fact.keep_completed else ""
    return "", f"round {fact.round} started{_by(fact)}{running}{kept}{budgets}", "try"


def _stale(writer: StoryWriter, fact: e.RunStarted | e.RunReopened, at: datetime) -> Iterator[_Sentence]:
    """The steps that run again although they had completed, and the files that made them stale."""
    yield from ((one.step, f"runs again: {one.text}", "try") for one in fact.stale)


def _raised(writer: StoryWriter, fact: e.RunReopened, at: datetime) -> Iterator[_Sentence]:
    """The stale steps of this round, those that run again because of another, and the resources of its attempts."""
    yield from _stale(writer, fact, at)
    if fact.fresh is not None:
        sources = writer.memory.direct_sources(fact.put_back)
        yield from (
            (step, f"runs again after '{source}', which it depends on", "try") for step, source in sources.items()
        )
    yield from ((step, f"runs again{describe_adjustment(more)}", "try") for step, more in fact.adjustments.items())


def _ended(writer: StoryWriter, fact: Any, at: datetime) -> _Sentence | None:
    verb = {e.RunCompleted: "completed", e.RunFailed: "failed", e.RunCancelled: "cancelled"}[type(fact)]
    was = "was " if verb == "cancelled" else ""
    mended, dropped = (fact.recovered_steps_count, fact.handled_steps_count), fact.dropped_outputs_count
    degraded = describe_degraded(*mended, dropped) if fact.degraded else ""
    counts = {"failed": fact.failed_steps_count}
    if not degraded:
        counts |= {"handled": fact.handled_steps_count, "recovered": fact.recovered_steps_count}
    counts |= {"skipped": fact.skipped_steps_count}
    steps = ", ".join([pluralize(fact.total_steps, "step"), *(f"{n:,} {word}" for word, n in counts.items() if n)])
    text = f"the run {was}{verb}{f' ({degraded})' if degraded else ''}{_why_ended(writer, fact, verb)} ({steps})"
    return END, text, "good" if verb == "completed" else "bad"


def _why_ended(writer: StoryWriter, fact: Any, verb: str) -> str:
    """The reason that the event has, or the unhandled failures by name, if the story so far knows all of them."""
    if fact.reason:
        return f"{', end returned' if fact.reason == writer.memory.reason_of_end else ''}: {fact.reason}"
    names, count = writer.memory.unhandled_steps(), fact.failed_steps_count
    return f": {_failures_of(names)} not handled" if verb == "failed" and count and len(names) == count else ""


def _failures_of(names: list[str]) -> str:
    return f"failure{'s' if len(names) > 1 else ''} of {quote_names(names)}"


# -- steps -----------------------------------------------------------------------------------------------------------


def _why_skipped(writer: StoryWriter, fact: e.StepSkipped | e.StepRestored) -> str:
    step = writer.memory.step(fact.step)
    if fact.reason == "need_unmet":
        name = writer.memory.unmet_need(fact.step)
        return f"'{name}' did not complete" if name else "a step that it needs did not complete"
    if fact.reason == "no_arrival" and step is not None and step.join == "all":
        return "not every edge to it was taken"
    if fact.reason == "when" and step is not None and step.when is not None:
        return f"condition not met: {step.when.source}"
    return _SKIP_REASONS.get(fact.reason, fact.reason.replace("_", " "))


_SKIP_REASONS = {
    "no_arrival": "no edge to it was taken",
    "when": "condition not met",
    "unreachable": "it can no longer be reached",
    "unsuccessful": "the run did not succeed, so nothing is merged",
    "loop_limit": "max_visits reached",
}


def _completed(writer: StoryWriter, fact: e.StepCompleted, at: datetime) -> _Sentence | None:
    if fact.step == END:
        return (END, "completed", "good") if fact.attempt else None
    no_route = "; no condition of its edges was met" if fact.no_route else ""
    routed = writer.memory.failures_routed_to(fact.step, fact.visit)
    # In a loop, how its next round goes decides about the failure.
    verb = "leads back after" if routed and writer.memory.leads_back(fact) else "handled"
    handles = f"; {verb} the {_failures_of(routed)}{_caught_at(writer, routed)}" if routed else ""
    since = writer.memory.reused_run(fact.step)
    how = up_to_date_since(since) if since else _how(fact.recovered_by) + _faked(writer, fact.step)
    if items := writer.memory.reused_items(fact.step):
        how += f", {pluralize(items, 'item')} up to date"
    return fact.step, f"{how}{_called(writer, fact.step)}{_work_done(writer, fact)}{no_route}{handles}", "good"


def _called(writer: StoryWriter, step: str) -> str:
    """Where a program has called the step, in the full story."""
    call = writer.memory.call(step) if writer.has_details else None
    where = "" if call is None else where_text(call)
    return f" ({where})" if where else ""


def _why_cancelled(writer: StoryWriter, step: str) -> str:
    """Who has cancelled the call of a program: nearly always the program."""
    call = writer.memory.call(step)
    if call is None or not writer.memory.is_unwanted(step):
        return ""
    where = where_text(call) if writer.has_details else ""
    return f" by '{call.program}'{f' ({where})' if where else ''}"


def _ran(writer: StoryWriter, fact: e.StepRan, at: datetime) -> Iterable[_Sentence]:
    """An inline step: it has run in the process of its program."""
    where = where_text(fact)
    return [(fact.step, f"completed inline{f' ({where})' if where else ''}", "good")]


def _kept(writer: StoryWriter, fact: e.StepAdded, at: datetime) -> Iterable[_Sentence]:
    """A call that has the result of one that a round has dropped."""
    where = where_text(fact)
    return [(fact.step, f"keeps its result{f' ({where})' if where else ''}", "good")] if fact.is_kept else []


def _caught_at(writer: StoryWriter, names: list[str]) -> str:
    """Where a program has caught the failures of its calls, if that is one line."""
    lines = {writer.memory.caught_at(name) for name in names}
    return f" at {lines.pop()}" if len(lines) == 1 and "" not in lines else ""


def _work_done(writer: StoryWriter, fact: e.StepCompleted) -> str:
    """What a step of `workspace` did: where the run works, or where its work is now."""
    step, output = writer.memory.step(fact.step), fact.output
    action = None if step is None else step.action
    is_of_workspace = action is not None and traits_of(action).opens_worktrees
    if action is None or not is_of_workspace or not isinstance(output, dict) or "branch" not in output:
        return ""
    branch = f"branch '{output['branch']}'"
    if "folder" in output:
        dirty = pluralize(output["uncommitted"], "uncommitted change") if output.get("uncommitted") else ""
        note = f"; without {dirty} of your checkout" if dirty else ""
        note += ", a copy of the one of the other run" if "items" in output else ""
        return f": works in {output['folder']} on {branch}{note}"
    if action.params.get("merge") == "none":
        return f": {pluralize(output['commits'], 'commit')} on {branch}; to merge: git merge {output['branch']}"
    return f": merged into '{output['merged_into'] or 'HEAD'}'"


def _faked(writer: StoryWriter, name: str) -> str:
    step = writer.memory.step(name)
    return " (faked)" if step is not None and traits_of(step.action).is_fake else ""


def _how(recovered_by: str) -> str:
    if not recovered_by:
        return "completed"
    return f"recovered {_RECOVERED.get(recovered_by, f'by its {recovered_by} handler')}"


_RECOVERED = {"rerun": "on the rerun after its handler", "recovery": "by its handler"}


def _failed(writer: StoryWriter, fact: e.StepFailed, at: datetime) -> _Sentence | None:
    allowed = " (allowed)" if fact.is_allowed else ""
    call = writer.memory.call(fact.step)
    route = describe_route(fact, writer.memory.step(fact.step))
    if call is not None and fact.route.is_sent:
        route = f"raised at {where_text(call)}" if call.line else f"raised in '{call.program}'"
    is_passed_on = fact.route.is_sent and not fact.is_allowed
    routed = [] if is_passed_on else writer.memory.failures_routed_to(fact.step, fact.visit)
    unhandled = f"; {_failures_of(routed)} not handled" if routed else ""
    failure = writer.describe_final(fact, fact.step, at)
    text = f"failed{_faked(writer, fact.step)}{allowed} with {failure}{f'; {route}' if route else ''}{unhandled}"
    return fact.step, text, "bad"


def _edges_after_success(writer: StoryWriter, fact: e.StepCompleted, at: datetime) -> Iterable[_Sentence]:
    step = writer.memory.step(fact.step)
    if step is None or not step.edges:
        return ()
    return [(fact.step, text, "plain") for text in edges_after_success(step, fact.taken)]


def _parked(writer: StoryWriter, fact: e.StepParked, at: datetime) -> _Sentence | None:
    step = writer.memory.step(fact.step)
    default = "the default applies"
    if step is not None and step.triage is not None:
        # What could not be undone runs again only if somebody says so.
        is_retried = step.triage.default == "retry" and fact.reason != "undo_failed"
        default = "it will be retried" if is_retried else "it will fail"
    if fact.agent:
        return fact.step, f"parked for a decision; agent '{fact.agent}' is asked", "wait"
    otherwise = "" if fact.due is None else f"; without one, {default} {format_time_until(fact.due, at)}"
    return fact.step, f"parked for a decision{otherwise}", "wait"


def _suggested(writer: StoryWriter, fact: e.TriageSuggested, at: datetime) -> _Sentence | None:
    step = writer.memory.step(fact.step)
    default = step.triage.default if step is not None and step.triage is not None else "the default"
    otherwise = "" if fact.due is None else f"; without a decision {format_time_until(fact.due, at)}: {default}"
    return fact.step, f"{describe_suggestion(fact)}; a person decides{otherwise}", "wait"


def _classified(writer: StoryWriter, fact: e.StepClassified, at: datetime) -> _Sentence | None:
    if fact.is_default:
        return fact.step, f"no decision in time, default applied: {fact.verdict}", "try"
    sure = "" if fact.confidence is None else f" ({fact.confidence:.0%} sure)"
    more = f"{describe_adjustment(fact.adjusted)}{format_raised_budgets(fact.budgets)}{sure}"
    rule = f"; it proposes the rule: {single_line(fact.rule)}" if fact.rule else ""
    return fact.step, f"{fact.by or 'a person'} decided: {fact.verdict}{more}: {fact.reason}{rule}", "try"


# -- attempts --------------------------------------------------------------------------------------------------------


def _scheduled(writer: StoryWriter, fact: e.AttemptScheduled, at: datetime) -> _Sentence | None:
    if fact.cause not in _FREE_RERUNS:
        return None
    return (
        fact.place,
        f"runs again as attempt {fact.attempt}; {_FREE_RERUNS[fact.cause]} does not use up a retry",
        "try",
    )


# What was not the fault of an attempt, by the cause of the next one.
_FREE_RERUNS = {"lost": "a lost worker", "job_ended": "a job that somebody ended", "time": "the end of a worker's time"}


def _started(writer: StoryWriter, fact: e.AttemptStarted, at: datetime) -> _Sentence | None:
    """Only of an attempt that calls a child run, or runs on another host than it should."""
    spec = writer.memory.spec(fact.place)
    if spec is not None and spec.action is not None and traits_of(spec.action).calls_run:
        if fact.continues is not None:
            called = fact.continues
            return fact.place, f"continued run {called.run_id} in its round {called.round}", "try"
        run_id = writer.memory.children.get((fact.place, fact.attempt))
        params = spec.action.params
        calls = "started its group" if params.get("group") else f"called '{params.get('file')}'"
        return fact.place, f"{calls}{f' as run {run_id}' if run_id else ''}", "plain"
    if fact.instead_of:
        return (
            fact.place,
            f"runs on {fact.host}; {fact.instead_of}, where its earlier attempt ran, is gone",
            "try",
        )
    return None


def _succeeded(writer: StoryWriter, fact: e.AttemptSucceeded, at: datetime) -> _Sentence | None:
    """Only of an approval, a warning, or the end of a child run."""
    if isinstance(fact.output, dict) and fact.output.keys() == {"approved", "by", "reason"}:
        return fact.place, f"approved by {fact.output['by']}: {fact.output['reason']}", "good"
    if fact.warnings:
        return fact.place, f"warning: {describe_failure(fact.warnings[-1])}", "wait"
    run_id = writer.memory.child_of(fact)
    return (fact.place, f"child run {run_id} completed", "good") if run_id else None


# -- the ladder ------------------------------------------------------------------------------------------------------


def _retry(writer: StoryWriter, fact: e.RetryScheduled, at: datetime) -> _Sentence | None:
    spec = writer.memory.spec(fact.place)
    rule = spec.rules[fact.rule] if spec is not None and fact.rule < len(spec.rules) else None
    name = f"rule for {describe_rule(rule)}" if rule else f"rule {fact.rule + 1}"
    number = f"{fact.number} of {rule.max_retries}" if rule else str(fact.number)
    script = " after its recovery script" if fact.has_script else ""
    when = f"{format_time_until(fact.due, at)}{script}{describe_adjustment(fact.adjusted)}{_elsewhere(fact)}"
    return fact.place, f"retry {number} {when} ({name})", "try"


def _elsewhere(fact: e.RetryScheduled) -> str:
    """Which hosts the retry avoids, and for how long."""
    if fact.avoids is None:
        return ""
    seconds = (fact.avoids.until - fact.due).total_seconds()
    hosts = "host" if len(fact.avoids.hosts) == 1 else "hosts"
    within = format_duration(seconds)
    return f", not on {hosts} {quote_names(fact.avoids.hosts)} unless no other host takes it within {within}"


def _passed(writer: StoryWriter, fact: e.RungPassed, at: datetime) -> _Sentence | None:
    spec, failure = writer.memory.spec(fact.place), writer.memory.failure(fact.place)
    if fact.reason in _RULE_REASONS:
        reason = _no_retry(fact.reason, spec, failure)
        text = f"no retry: {reason}" if reason else ""
    elif fact.reason == "reruns_exhausted" and fact.rung == "retry":
        text = f"lost its worker more than {RERUNS_AFTER_LOSS_MAX} times, which counts as a failure"
    else:
        text = _limit(fact.reason, spec) or _PASSED.get(fact.reason, "")
    return (fact.place, text, "plain") if text else None


_RULE_REASONS = ("no_rule", "retries_exhausted", "rule_attempts_exhausted", *(f"{cap}_reached" for cap in CAPS))


# Of more rules than this, the first are named.
_RULES_NAMED_MAX = 3


def _rules_there(rules: Sequence[Rule]) -> str:
    """`is one for exit code 7`, `are rules for TIMEOUT; 'no space left'; exit code 7; …`."""
    names = [describe_rule(rule) for rule in rules[:_RULES_NAMED_MAX]]
    if len(rules) > _RULES_NAMED_MAX:
        names.append("…")
    return f"is one for {names[0]}" if len(rules) == 1 else f"are rules for {'; '.join(names)}"


def _no_retry(reason: str, spec: Command | None, failure: Failure | None) -> str:
    """Why no rule grants a retry; "" if there are no rules."""
    rules = spec.rules if spec is not None else ()
    if reason == "no_rule":
        if failure is not None and failure.is_fatal and rules:
            names = "its code or its class" if failure.exceptions else "it"
            return f"{failure.code} is fatal, and no rule names {names}"
        return f"no rule matches (there {_rules_there(rules)})" if rules else ""
    index = matching_rule(rules, failure) if failure is not None else None
    if index is None:
        return "all retries are used up"
    rule = rules[index]
    name = f"the rule for {describe_rule(rule)}"
    if cap := describe_cap(reason, rule):
        return f"{cap} ({name})"
    if reason == "rule_attempts_exhausted":
        return f"{name} allows {pluralize(rule.max_attempts or 0, 'attempt')}"
    if rule.max_retries > 1:
        return f"all {rule.max_retries} retries of {name} are used up"
    return f"the only retry of {name} is used up" if rule.max_retries else f"{name} allows none"


def _limit(reason: str, spec: Command | None) -> str:
    if spec is not None and reason == "attempts_exhausted" and spec.max_attempts is not None:
        return f"no retry: max_attempts of {spec.max_attempts} reached"
    if spec is not None and reason == "deadline_passed" and spec.deadline is not None:
        return f"no retry: the deadline of {format_duration(spec.deadline)} leaves no time"
    return ""


_PASSED = {
    "attempts_exhausted": "no retry: max_attempts reached",
    "call_recorded": "no retry: the program would get the failure of its call again",
    "deadline_passed": "no retry: the deadline leaves no time",
    "reruns_exhausted": "no rerun: the reruns of its handler are used up",
    "handler_failure_fatal": "not parked: its handler failed, which is fatal",
    "critical": "not parked: the failure is critical",
    "loop_limit": "not retried in this round: max_visits reached",
    "rule_matched": "not parked: a rule matched",
    "undo_failed": "not tried again: an undo in its child run failed, so what that did may still be in effect",
}


def _handling(writer: StoryWriter, fact: e.HandlerStarted, at: datetime) -> _Sentence | None:
    spec = writer.memory.spec(fact.place)
    handler = spec.on_failure if spec is not None else None
    notes = [pluralize(len(handler.commands), "command")] if handler and len(handler.commands) > 1 else []
    notes += [f"timeout {format_duration(handler.timeout)}"] if handler and handler.timeout else []
    joined = ", ".join(notes)
    return fact.place, f"{fact.strategy} handler started{f' ({joined})' if joined else ''}", "try"


def _handler_done(writer: StoryWriter, fact: e.HandlerSucceeded, at: datetime) -> _Sentence | None:
    """Only of a handler that does not complete its place."""
    spec = writer.memory.spec(fact.place)
    if fact.strategy == "cleanup":
        stands = "; the failure stands" if writer.memory.failure(fact.place) else ""
        return fact.place, f"cleanup handler finished{stands}", "plain"
    if fact.strategy == "custom" and isinstance(fact.output, dict) and fact.output.get("status") == "failed":
        return fact.place, "handler decided: failed", "plain"
    is_rerun = spec is not None and spec.on_failure is not None and spec.on_failure.rerun
    return (fact.place, "handler finished; running again", "try") if is_rerun else None


def _command_done(writer: StoryWriter, fact: e.CommandCompleted, at: datetime) -> Iterator[_Sentence]:
    if fact.role in _SHOWN_COMMANDS:
        yield fact.place, f"{_how(fact.recovered_by)}{_doing(writer.memory.spec(fact.place))}", "good"


def _command_failed(writer: StoryWriter, fact: e.CommandFailed, at: datetime) -> Iterator[_Sentence]:
    """What follows from the failure; the failure itself is in the line of its attempt."""
    if fact.role == "script":
        yield fact.place, "failed; the retry runs anyway", "bad"
    elif fact.is_allowed:
        yield fact.place, "failed (allowed)", "bad"


def _command_skipped(writer: StoryWriter, fact: e.CommandSkipped, at: datetime) -> Iterator[_Sentence]:
    step = writer.memory.step(step_name(fact.place))
    when = step.do[fact.index].when if step is not None else None
    yield fact.place, f"skipped: condition not met{f': {when.source}' if when else ''}", "plain"


_SHOWN_COMMANDS = ("handler", "script")


def _doing(spec: Command | None) -> str:
    """The text of a shell command, if no values are inserted into it."""
    action = spec.action if spec is not None else None
    if action is None or not (script := traits_of(action).script) or action.bindings:
        return ""
    line = str(action.params.get(script) or "").strip().partition("\n")[0]
    return f": {line if len(line) <= COMMAND_CHARS_MAX else line[: COMMAND_CHARS_MAX - 1] + '…'}"


# -- items -----------------------------------------------------------------------------------------------------------


def _expanded(writer: StoryWriter, fact: e.MapExpanded, at: datetime) -> _Sentence | None:
    if fact.items is not None:
        return fact.place, f"expanded to {pluralize(len(fact.items), 'item')}", "plain"
    return fact.place, f"running {pluralize(len(fact.todo or ()), 'item')} again", "try"


def _attempt_failed(writer: StoryWriter, fact: e.AttemptFailed, at: datetime) -> _Sentence | None:
    """Not of a question to the model of an agent: the agent's own attempt fails with the same."""
    if _QUESTION.search(fact.place):
        return None
    return fact.place, f"attempt {fact.attempt} failed with {describe_failure(fact.failure)}", "bad"


def _tool_called(writer: StoryWriter, fact: e.ToolCalled, at: datetime) -> _Sentence | None:
    """Only of a call that is made; why one is not made is in the answer."""
    return (fact.place, f"called {tool_call_text(fact)}", "plain") if fact.position >= 0 else None


_Rule = Callable[[StoryWriter, Any, datetime], _Sentence | None]
_SENTENCES: dict[type[e.Fact], _Rule] = {
    e.RunStarted: lambda t, f, at: _forked(f) if f.forked_from else None,
    e.RunForked: lambda t, f, at: ("", f"goes on here from event {f.seq} of run {f.run_id}{_by(f)}", "try"),
    e.RunPaused: lambda t, f, at: ("", f"paused{_by(f)}", "wait"),
    e.RunResumed: lambda t, f, at: ("", f"resumed{_for_steps(f)}{_by(f)}", "plain"),
    e.StepPaused: lambda t, f, at: (f.step, f"paused{_by(f)}", "wait"),
    e.StepResumed: lambda t, f, at: (f.step, f"resumed{_by(f)}", "plain"),
    e.RunStopping: _stopping,
    e.RunRevised: _revised,
    e.RunReopened: _reopened,
    e.RunCompleted: _ended,
    e.RunFailed: _ended,
    e.RunCancelled: _ended,
    e.EventReceived: lambda t, f, at: ("", f"got the event '{f.name}'{_by(f)}", "plain"),
    e.EventDelivered: lambda t, f, at: (f.place, f"took the event '{f.name}'", "plain"),
    e.RunLate: lambda t, f, at: ("", f"late: it has lasted longer than {format_duration(f.after)}", "wait"),
    e.StepEntered: lambda t, f, at: (
        (f.step, f"visit {f.visit} started", "plain") if f.visit > 1 and f.step != END else None
    ),
    e.StepSkipped: lambda t, f, at: (f.step, f"skipped: {_why_skipped(t, f)}", "plain"),
    e.StepRestored: lambda t, f, at: (f.step, f"keeps its earlier result: {_why_skipped(t, f)}", "plain"),
    e.StepCompleted: _completed,
    e.StepFailed: _failed,
    e.StepCancelled: lambda t, f, at: (f.step, f"cancelled{_why_cancelled(t, f.step)}", "bad"),
    e.StepParked: _parked,
    e.StepClassified: _classified,
    e.TriageSuggested: _suggested,
    e.StepPutBack: lambda t, f, at: (
        (f.step, f"will run again: '{f.by}' completed", "try") if f.cause == "rerun" else None
    ),
    e.StepReplaced: lambda t, f, at: (f.step, f"replaced by '{f.by}'", "good"),
    e.StepSettled: lambda t, f, at: (
        (f.step, f"no step could replace it: {describe_failure(f.failure)}", "bad") if f.failure else None
    ),
    e.LoopTaken: lambda t, f, at: (f.step, f"loop {f.number}: back to '{f.to}' {format_time_until(f.due, at)}", "try"),
    e.AttemptScheduled: _scheduled,
    e.AttemptStarted: _started,
    e.AttemptFailed: _attempt_failed,
    e.AttemptSucceeded: _succeeded,
    e.AttemptInterrupted: lambda t, f, at: (f.place, f"attempt {f.attempt} {describe_interruption(f)}", "try"),
    e.AttemptLost: lambda t, f, at: (
        f.place,
        f"attempt {f.attempt} lost: {f.machine or describe_lost_worker(f.worker, f.job)}",
        "bad",
    ),
    e.ResultRejected: lambda t, f, at: (f.place, f"result rejected: {describe_failure(f.failure)}", "bad"),
    e.RungPassed: _passed,
    e.RetryScheduled: _retry,
    e.HandlerStarted: _handling,
    e.HandlerSucceeded: _handler_done,
    e.HandlerFailed: lambda t, f, at: (
        f.place,
        f"handler also failed with {describe_failure(f.failure.cause[0])}",
        "bad",
    ),
    e.MapExpanded: _expanded,
    e.ItemFailed: lambda t, f, at: (f.place, f"item failed with {describe_failure(f.failure)}", "bad"),
    e.ItemCompleted: lambda t, f, at: (f.place, f"item {_how(f.recovered_by)}", "good") if f.recovered_by else None,
    e.UndoCompleted: lambda t, f, at: (f.step, "undone", "good"),
    e.UndoFailed: lambda t, f, at: (
        f.step,
        f"undo failed with {describe_failure(f.failure)}{'; what it did may still be in effect' if f.is_kept else ''}",
        "bad",
    ),
    e.DataSet: lambda t, f, at: (f.place, f"set data '{f.name}' (version {f.version})", "plain"),
    e.ToolCalled: _tool_called,
    e.ToolAnswered: lambda t, f, at: (f.place, tool_answer_text(f), "bad" if f.error else "plain"),
    e.WarningRecorded: lambda t, f, at: (f.place, f"warning: {describe_failure(f.failure)}", "wait"),
    e.ReportRefused: lambda t, f, at: (
        (f.place, f"refused a request that it could not process ({f.report}){_by(f)}", "bad") if f.report else None
    ),
}
# The facts that may have a sentence.
STORY_FACTS = frozenset(_SENTENCES)

_Details = Callable[[StoryWriter, Any, datetime], Iterable[_Sentence]]
_DETAILS: dict[type[e.Fact], _Details] = {
    e.RunRevised: lambda t, f, at: ((step, f"changed: {', '.join(keys)}", "plain") for step, keys in f.changed.items()),
    e.RunStarted: _stale,
    e.RunReopened: _raised,
    e.StepCompleted: _edges_after_success,
    e.StepAdded: _kept,
    e.StepRan: _ran,
    e.StepFailed: lambda t, f, at: ((f.step, text, "plain") for text in edges_after_failure(f, t.memory.step(f.step))),
    e.CommandCompleted: _command_done,
    e.CommandFailed: _command_failed,
    e.CommandSkipped: _command_skipped,
    e.UndoStarted: lambda t, f, at: iter([(f.step, "undo started", "try")]),
    e.SessionKept: lambda t, f, at: iter([(f.place, session_text(f), "plain")]),
    e.ReportRefused: lambda t, f, at: (
        iter(()) if f.report else iter([(f.place, f"late report on attempt {f.attempt} ignored", "plain")])
    ),
}


def _for_steps(fact: e.RunResumed) -> str:
    return f" for {pluralize(fact.steps, 'step')}" if fact.steps else ""


def _by(fact: Any) -> str:
    reason = getattr(fact, "reason", "")
    return (f" by {fact.by}" if fact.by else "") + (f": {reason}" if reason else "")
