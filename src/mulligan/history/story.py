"""A run told in sentences, from its events alone: one line per fact that matters to a person, none for the rest.

`Teller` remembers what it has told, so that a sentence can say which rule matched, whose failure was handled, and what
a step was skipped for. How things are called is in `words`, why edges were not taken in `crossroads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.deciding.adjustment import CAPS
from mulligan.core.deciding.conditions import describe_rule, matching_rule
from mulligan.core.deciding.fakes import is_faked
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.formatting import format_duration, format_time_until, pluralize, quote_names, single_line
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.spending import format_raised_budgets
from mulligan.core.model.workflow import END, RERUNS_AFTER_LOSS_MAX, Command, Rule, Workflow
from mulligan.history.edge_reasons import after_failure, after_success, takes_over
from mulligan.history.phrases import (
    describe_adjustment,
    describe_cap,
    describe_failure,
    failure_label,
    last_lines,
    up_to_date_since,
)
from mulligan.history.story_memory import StoryMemory

Tone = Literal["plain", "good", "bad", "try", "wait"]
# Of a command's text.
COMMAND_CHARS_MAX = 40


class Line(msgspec.Struct, frozen=True):
    """One sentence about one place. The tone is for whoever colours it."""

    at: datetime
    place: str
    text: str
    tone: Tone = "plain"
    seq: int = 0
    # For whoever asks why, and not for whoever looks on.
    is_detail: bool = False
    # It says all that the line before it did: who can, leaves that one out.
    is_whole: bool = False
    # The run that is called here: its own story belongs here.
    child_run_id: int = 0
    # The last lines of what an attempt wrote that failed: for whoever asks why, below the sentence.
    tail: tuple[str, ...] = ()


# Whom it is about, what is said, and how.
_Sentence = tuple[str, str, Tone]
_Said = _Sentence | None


def _line(at: datetime, said: _Sentence, *rest: Any) -> Line:
    """One line, whatever a step or a person put into it."""
    place, text, tone = said
    return Line(at, place, single_line(text), tone, *rest)


def _tail(fact: e.Fact, *, is_whole: bool) -> tuple[str, ...]:
    """What a failed attempt wrote last; of a failure that ends a step, where its sentence replaces the attempt's."""
    if isinstance(fact, e.AttemptFailed):
        return last_lines(fact.failure)
    return last_lines(fact.failure) if is_whole and isinstance(fact, e.StepFailed | e.ItemFailed) else ()


class Teller:
    """Tells one run, entry by entry; where details are wanted also what only `explain` says."""

    def __init__(
        self,
        workflow: Workflow | None = None,
        children: Mapping[tuple[str, int], int] | None = None,
        *,
        has_details: bool = True,
    ) -> None:
        self.memory = StoryMemory(workflow, children)
        self._details: dict[type[e.Fact], _Details] = _DETAILS if has_details else {}
        # The last sentence about an attempt that failed: the end of its step may say it all again.
        self._attempt: tuple[str, datetime] | None = None

    def tell(self, entry: e.Entry) -> list[Line]:
        """The sentences for an entry; most have none."""
        kind = type(entry.fact)
        rule, details = _SENTENCES.get(kind), self._details.get(kind)
        lines = self._lines(entry, rule, details) if rule or details else []
        self.memory.see(entry.fact)
        return lines

    def _lines(self, entry: e.Entry, rule: _Rule | None, details: _Details | None) -> list[Line]:
        fact, at = entry.fact, entry.at
        said = rule(self, fact, at) if rule else None
        is_whole = self._is_whole(fact, at)
        rest = (entry.seq, False, is_whole, self._called(fact), _tail(fact, is_whole=is_whole))
        lines = [_line(at, said, *rest)] if said else []
        if details:
            lines += [_line(at, one, entry.seq, True) for one in details(self, fact, at)]
        if said:
            self._attempt = (said[0], at) if isinstance(fact, e.AttemptFailed) else None
        return lines

    def _called(self, fact: e.Fact) -> int:
        return self.memory.children.get((fact.place, fact.attempt), 0) if isinstance(fact, e.AttemptStarted) else 0

    def _is_whole(self, fact: e.Fact, at: datetime) -> bool:
        """A step or item that failed at its only attempt: what is said of it says all that the attempt's line did."""
        if not isinstance(fact, e.StepFailed | e.ItemFailed) or self._attempt is None or self._attempt[1] != at:
            return False
        name = fact.step if isinstance(fact, e.StepFailed) else fact.place
        return self._attempt[0] == name or self._attempt[0].startswith(f"{name}.")

    def again(self, fact: Any, name: str, at: datetime) -> str:
        """A failure that ends a place: in a word, where all has been said of it before."""
        known = self.memory.failure(name)
        is_known = known is not None and known.message == fact.failure.message and known.code == fact.failure.code
        return (
            failure_label(fact.failure) if is_known and not self._is_whole(fact, at) else describe_failure(fact.failure)
        )


def story(
    entries: Iterable[e.Entry],
    workflow: Workflow | None = None,
    children: Mapping[tuple[str, int], int] | None = None,
) -> Iterator[Line]:
    """All of it, without what is said twice."""
    teller, last = Teller(workflow, children), None
    for entry in entries:
        for line in teller.tell(entry):
            if last is not None and not line.is_whole:
                yield last
            last = line
    if last is not None:
        yield last


# -- the run ---------------------------------------------------------------------------------------------------------


def _stopping(teller: Teller, fact: e.RunStopping, at: datetime) -> _Said:
    cause = {"cancelled": f"cancelled{_by(fact)}", "failed_fast": f"fail-fast, {fact.reason}"}.get(fact.cause)
    return "", f"stopping: {cause or fact.reason}{', at once' if fact.now else ''}", "bad"


def _revised(teller: Teller, fact: e.RunRevised, at: datetime) -> _Said:
    changes = [f"changed {quote_names(list(fact.changed))}"] if fact.changed else []
    changes += [f"added {quote_names(fact.added)}"] if fact.added else []
    changes += [f"removed {quote_names(fact.removed)}"] if fact.removed else []
    changes += [f"changed the workflow itself: {', '.join(fact.settings)}"] if fact.settings else []
    what_changed = f": {'; '.join(changes)}" if changes else ""
    return "", f"goes on with a corrected definition, {fact.version}{_by(fact)}{what_changed}", "try"


def _changed_keys(teller: Teller, fact: e.RunRevised, at: datetime) -> Iterator[_Sentence]:
    """What of each step is another."""
    yield from ((step, f"changed: {', '.join(keys)}", "plain") for step, keys in fact.changed.items())


def _reopened(teller: Teller, fact: e.RunReopened, at: datetime) -> _Said:
    again = quote_names(fact.put_back)
    if fact.indexes:
        again = f"{pluralize(len(fact.indexes), 'item')} of '{fact.from_step}'"
    more = f"{f'; {again} again' if again else ''}{format_raised_budgets(fact.budgets)}"
    return "", f"round {fact.round}{_by(fact)}{more}", "try"


def _stale(teller: Teller, fact: e.RunStarted | e.RunReopened, at: datetime) -> Iterator[_Sentence]:
    """Which steps run again although they had completed, and for which files."""
    yield from ((one.step, f"runs again: {one.text}", "try") for one in fact.stale)


def _raised(teller: Teller, fact: e.RunReopened, at: datetime) -> Iterator[_Sentence]:
    """What the attempts of this round get, and which of its steps had completed before."""
    yield from _stale(teller, fact, at)
    yield from ((step, f"goes again{describe_adjustment(more)}", "try") for step, more in fact.adjustments.items())


def _ended(teller: Teller, fact: Any, at: datetime) -> _Said:
    verb = {e.RunCompleted: "completed", e.RunFailed: "failed", e.RunCancelled: "cancelled"}[type(fact)]
    was = "was " if verb == "cancelled" else ""
    degraded = ", not without help" if fact.degraded else ""
    by_end = ", end says" if fact.reason == teller.memory.reason_of_end else ""
    because = f"{by_end}: {fact.reason}" if fact.reason else _unhandled(teller, fact) if verb == "failed" else ""
    return END, f"the run {was}{verb}{degraded}{because} ({_counts(fact)})", "good" if verb == "completed" else "bad"


def _unhandled(teller: Teller, fact: Any) -> str:
    """Who failed with nobody to handle it: by name, as far as all of the story is known."""
    names, count = teller.memory.unhandled(), fact.failed_steps_count
    if not count:
        return ""
    return f": nobody handled {_failures_of(names)}" if len(names) == count else ""


def _failures_of(names: list[str]) -> str:
    return f"the failure{'s' if len(names) > 1 else ''} of {quote_names(names)}"


def _counts(fact: Any) -> str:
    found = {
        "failed": fact.failed_steps_count,
        "handled": fact.handled_steps_count,
        "recovered": fact.recovered_steps_count,
        "skipped": fact.skipped_steps_count,
    }
    return ", ".join([pluralize(fact.total_steps, "step"), *(f"{n:,} {word}" for word, n in found.items() if n)])


# -- steps -----------------------------------------------------------------------------------------------------------


def _skipped(teller: Teller, fact: e.StepSkipped, at: datetime) -> _Said:
    return fact.step, f"skipped: {_why_skipped(teller, fact)}", "plain"


def _why_skipped(teller: Teller, fact: e.StepSkipped | e.StepRestored) -> str:
    step = teller.memory.step(fact.step)
    if fact.reason == "need_unmet":
        name = teller.memory.unmet_need(fact.step)
        return f"'{name}' did not complete" if name else "what it needs did not complete"
    if fact.reason == "no_arrival" and step is not None and step.join == "all":
        return "not every edge to it was taken"
    if fact.reason == "when" and step is not None and step.when is not None:
        return f"{step.when.source} does not hold"
    return _PASSED_OVER.get(fact.reason, fact.reason.replace("_", " "))


_PASSED_OVER = {
    "no_arrival": "no edge led to it",
    "when": "its condition does not hold",
    "unreachable": "nothing can lead to it any more",
    "loop_limit": "max_visits is used up",
}


def _completed(teller: Teller, fact: e.StepCompleted, at: datetime) -> _Said:
    if fact.step == END:
        return (END, "completed", "good") if fact.attempt else None
    no_route = "; none of its edges holds" if fact.no_route else ""
    carried = teller.memory.carried(fact.step, fact.visit)
    handles = f"; that handles {_failures_of(carried)}" if carried else ""
    since = teller.memory.reused_run(fact.step)
    how = up_to_date_since(since) if since else f"{_how(fact.recovered_by)}{_faked(teller, fact.step)}"
    if items := teller.memory.reused_items(fact.step):
        how += f", {pluralize(items, 'item')} up to date"
    return fact.step, f"{how}{no_route}{handles}", "good"


def _faked(teller: Teller, name: str) -> str:
    step = teller.memory.step(name)
    return ", faked" if step is not None and is_faked(step) else ""


def _how(recovered_by: str) -> str:
    if not recovered_by:
        return "completed"
    return f"recovered, {_RECOVERED.get(recovered_by, f'by its {recovered_by} handler')}"


_RECOVERED = {"rerun": "on the run after its handler", "recovery": "by its handler"}


def _failed(teller: Teller, fact: e.StepFailed, at: datetime) -> _Said:
    allowed = ", which it may" if fact.is_allowed else ""
    follows = takes_over(fact, teller.memory.step(fact.step))
    carried = [] if fact.route.is_sent and not fact.is_allowed else teller.memory.carried(fact.step, fact.visit)
    in_vain = f"; that leaves {_failures_of(carried)} unhandled" if carried else ""
    then = f"{f'; {follows}' if follows else ''}{in_vain}"
    said = f"failed{_faked(teller, fact.step)}{allowed}, {teller.again(fact, fact.step, at)}{then}"
    return fact.step, said, "bad"


def _edges_after_success(teller: Teller, fact: e.StepCompleted, at: datetime) -> Iterator[_Sentence]:
    step = teller.memory.step(fact.step)
    if step is not None:
        yield from ((fact.step, text, "plain") for text in after_success(step, fact.taken))


def _edges_after_failure(teller: Teller, fact: e.StepFailed, at: datetime) -> Iterator[_Sentence]:
    yield from ((fact.step, text, "plain") for text in after_failure(fact, teller.memory.step(fact.step)))


def _parked(teller: Teller, fact: e.StepParked, at: datetime) -> _Said:
    step = teller.memory.step(fact.step)
    default = "its default applies"
    if step is not None and step.triage is not None:
        default = "it is tried again" if step.triage.default == "retry" else "it fails"
    otherwise = "" if fact.due is None else f"; if nobody does, {default} {format_time_until(fact.due, at)}"
    return fact.step, f"parked for a person to decide{otherwise}", "wait"


def _classified(teller: Teller, fact: e.StepClassified, at: datetime) -> _Said:
    if fact.is_default:
        return fact.step, f"nobody decided in time: {fact.verdict}", "try"
    more = f"{describe_adjustment(fact.adjusted)}{format_raised_budgets(fact.budgets)}"
    return fact.step, f"{fact.by or 'someone'} says {fact.verdict}{more}: {fact.reason}", "try"


# -- attempts --------------------------------------------------------------------------------------------------------


def _scheduled(teller: Teller, fact: e.AttemptScheduled, at: datetime) -> _Said:
    if fact.cause != "lost":
        return None
    return fact.place, f"runs again as attempt {fact.attempt}: a lost worker spends no retry", "try"


def _started(teller: Teller, fact: e.AttemptStarted, at: datetime) -> _Said:
    """Of itself no news; but that it calls a child run, or runs on another host than it should, is."""
    spec = teller.memory.spec(fact.place)
    if spec is not None and spec.action is not None and spec.action.kind == "workflow":
        run_id = teller.memory.children.get((fact.place, fact.attempt))
        params = spec.action.params
        calls = "its group starts" if params.get("group") else f"calls '{params.get('file')}'"
        return fact.place, f"{calls}{f' as run {run_id}' if run_id else ''}", "plain"
    if fact.instead_of:
        return fact.place, f"runs on {fact.host}: {fact.instead_of}, where its attempt ran, is gone", "try"
    return None


def _succeeded(teller: Teller, fact: e.AttemptSucceeded, at: datetime) -> _Said:
    """Of itself no news; but who approved, how a child run ended and what a step warned of is."""
    if isinstance(fact.output, dict) and fact.output.keys() == {"approved", "by", "reason"}:
        return fact.place, f"approved by {fact.output['by']}: {fact.output['reason']}", "good"
    if fact.warnings:
        return fact.place, f"warning, {describe_failure(fact.warnings[-1])}", "wait"
    run_id = teller.memory.children.get((fact.place, fact.attempt))
    return (fact.place, f"run {run_id} completed", "good") if run_id else None


# -- the ladder ------------------------------------------------------------------------------------------------------


def _retry(teller: Teller, fact: e.RetryScheduled, at: datetime) -> _Said:
    spec = teller.memory.spec(fact.place)
    rule = spec.rules[fact.rule] if spec is not None and fact.rule < len(spec.rules) else None
    named = f"the rule for {describe_rule(rule)}" if rule else f"rule {fact.rule + 1}"
    number = f"{fact.number} of {rule.max_retries}" if rule else str(fact.number)
    script = ", after its recovery script" if fact.has_script else ""
    return (
        fact.place,
        f"{named}: retry {number}, {format_time_until(fact.due, at)}{script}{describe_adjustment(fact.adjusted)}",
        "try",
    )


def _passed(teller: Teller, fact: e.RungPassed, at: datetime) -> _Said:
    spec, failure = teller.memory.spec(fact.place), teller.memory.failure(fact.place)
    if fact.reason in _OF_RULES:
        text = _no_retry(fact.reason, spec, failure)
    elif fact.reason == "reruns_exhausted" and fact.rung == "retry":
        text = f"lost more than {RERUNS_AFTER_LOSS_MAX} times: that is a failure now"
    else:
        text = _limit(fact.reason, spec) or _PASSED.get(fact.reason, "")
    return (fact.place, text, "plain") if text else None


_OF_RULES = ("no_rule", "retries_exhausted", "rule_attempts_exhausted", *(f"{cap}_reached" for cap in CAPS))


def _no_retry(reason: str, spec: Command | None, failure: Failure | None) -> str:
    """Why no rule grants a retry; nothing where there are none."""
    rules = spec.rules if spec is not None else ()
    if reason == "no_rule":
        if failure is not None and failure.is_fatal and rules:
            return f"no rule names {failure.code}, and nothing else retries it"
        return "no rule matches" if rules else ""
    index = matching_rule(rules, failure) if failure is not None else None
    if index is None:
        return "its retries are used up"
    return f"the rule for {describe_rule(rules[index])}: {_spent(reason, rules[index])}"


def _spent(reason: str, rule: Rule) -> str:
    if cap := describe_cap(reason, rule):
        return f"no retry, {cap}"
    if reason == "rule_attempts_exhausted":
        return f"no retry after {pluralize(rule.max_attempts or 0, 'attempt')}"
    return f"no retry left of {rule.max_retries}" if rule.max_retries else "no retries"


def _limit(reason: str, spec: Command | None) -> str:
    if spec is not None and reason == "attempts_exhausted" and spec.max_attempts is not None:
        return f"max_attempts is used up: {spec.max_attempts}"
    if spec is not None and reason == "deadline_passed" and spec.deadline is not None:
        return f"its deadline of {format_duration(spec.deadline)} leaves no time for a retry"
    return ""


_PASSED = {
    "attempts_exhausted": "max_attempts is used up",
    "deadline_passed": "its deadline leaves no time for a retry",
    "reruns_exhausted": "its handler's reruns are used up",
    "handler_failure_fatal": "its handler failed, and that is fatal",
    "critical": "not parked: the failure is critical",
    "loop_limit": "max_visits is used up: it is not tried again in this round",
    "rule_matched": "not parked: a rule matched",
}


def _handling(teller: Teller, fact: e.HandlerStarted, at: datetime) -> _Said:
    spec = teller.memory.spec(fact.place)
    handler = spec.on_failure if spec is not None else None
    commands = f", {pluralize(len(handler.commands), 'command')}" if handler and len(handler.commands) > 1 else ""
    limit = f", {format_duration(handler.timeout)} at most" if handler and handler.timeout else ""
    return fact.place, f"its {fact.strategy} handler runs{commands}{limit}", "try"


def _handler_done(teller: Teller, fact: e.HandlerSucceeded, at: datetime) -> _Said:
    """Where the place does not complete by that."""
    spec = teller.memory.spec(fact.place)
    if fact.strategy == "cleanup":
        stands = "; the failure stands" if teller.memory.failure(fact.place) else ""
        return fact.place, f"its cleanup is done{stands}", "plain"
    if fact.strategy == "custom" and isinstance(fact.output, dict) and fact.output.get("status") == "failed":
        return fact.place, "its handler decides: failed", "plain"
    is_rerun = spec is not None and spec.on_failure is not None and spec.on_failure.rerun
    return (fact.place, "its handler is done: it runs again", "try") if is_rerun else None


def _command_done(teller: Teller, fact: e.CommandCompleted, at: datetime) -> Iterator[_Sentence]:
    if fact.role in _TOLD_COMMANDS:
        yield fact.place, f"{_how(fact.recovered_by)}{_doing(teller.memory.spec(fact.place))}", "good"


def _command_failed(teller: Teller, fact: e.CommandFailed, at: datetime) -> Iterator[_Sentence]:
    """Its attempt has been told of: what is new is what follows from it."""
    if fact.role == "script":
        yield fact.place, "failed; the retry comes all the same", "bad"
    elif fact.is_allowed:
        yield fact.place, "failed, which it may", "bad"


def _command_skipped(teller: Teller, fact: e.CommandSkipped, at: datetime) -> Iterator[_Sentence]:
    step = teller.memory.step(step_name(fact.place))
    when = step.do[fact.index].when if step is not None else None
    yield fact.place, f"skipped: {when.source if when else 'its condition'} does not hold", "plain"


_TOLD_COMMANDS = ("handler", "script")


def _doing(spec: Command | None) -> str:
    """A shell command as it was written, where no values go into it."""
    action = spec.action if spec is not None else None
    if action is None or action.kind != "shell" or action.bindings:
        return ""
    line = str(action.params.get("text") or "").strip().partition("\n")[0]
    return f": {line if len(line) <= COMMAND_CHARS_MAX else line[: COMMAND_CHARS_MAX - 1] + '…'}"


# -- items -----------------------------------------------------------------------------------------------------------


def _expanded(teller: Teller, fact: e.MapExpanded, at: datetime) -> _Said:
    if fact.items is not None:
        return fact.place, pluralize(len(fact.items), "item"), "plain"
    return fact.place, f"{pluralize(len(fact.todo or ()), 'item')} once more", "try"


def _item_failed(teller: Teller, fact: e.ItemFailed, at: datetime) -> _Said:
    return fact.place, f"item failed, {describe_failure(fact.failure)}", "bad"


def _item_completed(teller: Teller, fact: e.ItemCompleted, at: datetime) -> _Said:
    return (fact.place, f"item {_how(fact.recovered_by)}", "good") if fact.recovered_by else None


_Rule = Callable[[Teller, Any, datetime], _Said]
_SENTENCES: dict[type[e.Fact], _Rule] = {
    e.RunStarted: lambda t, f, at: ("", f"forked from run {f.forked_from}{_by(f)}", "plain") if f.forked_from else None,
    e.RunPaused: lambda t, f, at: ("", f"paused{_by(f)}", "wait"),
    e.RunResumed: lambda t, f, at: ("", f"resumed{_by(f)}", "plain"),
    e.StepPaused: lambda t, f, at: (f.step, f"paused{_by(f)}", "wait"),
    e.StepResumed: lambda t, f, at: (f.step, f"resumed{_by(f)}", "plain"),
    e.RunStopping: _stopping,
    e.RunRevised: _revised,
    e.RunReopened: _reopened,
    e.RunCompleted: _ended,
    e.RunFailed: _ended,
    e.RunCancelled: _ended,
    e.StepEntered: lambda t, f, at: (f.step, f"visit {f.visit}", "plain") if f.visit > 1 and f.step != END else None,
    e.StepSkipped: _skipped,
    e.StepRestored: lambda t, f, at: (f.step, f"stays as it was: {_why_skipped(t, f)}", "plain"),
    e.StepCompleted: _completed,
    e.StepFailed: _failed,
    e.StepCancelled: lambda t, f, at: (f.step, "cancelled", "bad"),
    e.StepParked: _parked,
    e.StepClassified: _classified,
    e.StepPutBack: lambda t, f, at: (
        (f.step, f"goes again: '{f.by}' has completed", "try") if f.cause == "rerun" else None
    ),
    e.StepStoodIn: lambda t, f, at: (f.step, f"'{f.by}' stands in for it", "good"),
    e.StepSettled: lambda t, f, at: (
        (f.step, f"nothing could stand in for it, {describe_failure(f.failure)}", "bad") if f.failure else None
    ),
    e.LoopTaken: lambda t, f, at: (f.step, f"loop {f.number}, back to '{f.to}', {format_time_until(f.due, at)}", "try"),
    e.AttemptScheduled: _scheduled,
    e.AttemptStarted: _started,
    e.AttemptFailed: lambda t, f, at: (f.place, f"attempt {f.attempt} failed, {describe_failure(f.failure)}", "bad"),
    e.AttemptSucceeded: _succeeded,
    e.AttemptInterrupted: lambda t, f, at: (f.place, f"attempt {f.attempt} interrupted: it goes again", "try"),
    e.AttemptLost: lambda t, f, at: (f.place, f"attempt {f.attempt} lost: its worker is gone", "bad"),
    e.ResultRejected: lambda t, f, at: (f.place, f"its result is not accepted, {describe_failure(f.failure)}", "bad"),
    e.RungPassed: _passed,
    e.RetryScheduled: _retry,
    e.HandlerStarted: _handling,
    e.HandlerSucceeded: _handler_done,
    e.HandlerFailed: lambda t, f, at: (
        f.place,
        f"its handler failed too, {describe_failure(f.failure.cause[0])}",
        "bad",
    ),
    e.MapExpanded: _expanded,
    e.ItemFailed: _item_failed,
    e.ItemCompleted: _item_completed,
    e.UndoCompleted: lambda t, f, at: (f.step, "undone", "good"),
    e.UndoFailed: lambda t, f, at: (f.step, f"could not be undone, {describe_failure(f.failure)}", "bad"),
    e.WarningRecorded: lambda t, f, at: (f.place, f"warning, {describe_failure(f.failure)}", "wait"),
}
# Those that may have a sentence.
TOLD_FACTS = frozenset(_SENTENCES)

_Details = Callable[[Teller, Any, datetime], Iterator[_Sentence]]
_DETAILS: dict[type[e.Fact], _Details] = {
    e.RunRevised: _changed_keys,
    e.RunStarted: _stale,
    e.RunReopened: _raised,
    e.StepCompleted: _edges_after_success,
    e.StepFailed: _edges_after_failure,
    e.CommandCompleted: _command_done,
    e.CommandFailed: _command_failed,
    e.CommandSkipped: _command_skipped,
    e.UndoStarted: lambda t, f, at: iter([(f.step, "its undo runs", "try")]),
    e.ReportRefused: lambda t, f, at: iter([(f.place, f"a late report on attempt {f.attempt} is ignored", "plain")]),
}


def _by(fact: Any) -> str:
    reason = getattr(fact, "reason", "")
    return (f" by {fact.by}" if fact.by else "") + (f": {reason}" if reason else "")
