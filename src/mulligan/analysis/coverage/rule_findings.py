"""Findings about retry rules: those that never apply, that cannot help, or that repeat what should happen once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from mulligan.analysis.coverage.finding_codes import Found, Path
from mulligan.analysis.coverage.possible_codes import PossibleCodes
from mulligan.analysis.coverage.side_effects import COMMIT_UNKNOWN, NOTHING_DONE, side_effect
from mulligan.core.deciding.conditions import describe_rule
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import builtin_exception, code_of_exception, known_classes
from mulligan.core.model.text.formatting import number_ranges
from mulligan.core.model.workflow import Command, Rule, Step, Workflow

# The same step with the same values fails again: what it reads is recorded, and what is spent stays spent.
_SAME_AGAIN = {
    "EXPRESSION_FAILED": "an expression gives the same error again, since the values that it reads are recorded",
    "OUTPUT_TOO_LARGE": "the output that it reads was not kept, and is not there at the next attempt either",
    "INPUT_INVALID": "its values are recorded, so they are refused again",
    "LOOP_LIMIT": "a step that was visited too often has no attempts left",
    "BUDGET_EXCEEDED": "what was spent stays spent",
    "SECURITY_VIOLATION": "what is forbidden stays forbidden",
    "INTERNAL": "it is a defect of mulligan",
}


_Place = tuple[Step, Command, Path]


class _RuleAt(NamedTuple):
    """A rule, what it belongs to, and where it stands."""

    step: Step
    place: Command
    number: int
    path: Path

    @property
    def rule(self) -> Rule:
        return self.place.rules[self.number]

    @property
    def title(self) -> str:
        return f"the rule for {describe_rule(self.rule)} of step '{self.step.name}'"

    def found(self, code: str, message: str, hint: str = "", failure: str = "") -> Found:
        return Found(code, message, self.step, hint, failure, self.path)


def rule_findings(workflow: Workflow, codes: PossibleCodes) -> Iterator[Found]:
    """What is wrong with retry rules, for every step and every command of items.

    Rules that several steps share (a policy, or `defaults`) are written once. One of them is found only if that holds
    for all these steps, and it is found once.
    """
    shared: dict[bytes, list[_Place]] = {}
    for step in workflow.steps:
        for place, path in _places(step):
            if place.rules:
                shared.setdefault(msgspec.json.encode(place.rules), []).append((step, place, path))
            yield from _repeats_side_effect(step, place, path)
    for places in shared.values():
        for index in range(len(places[0][1].rules)):
            rows = [_RuleAt(step, place, index, (*path, "retry", "rules", index)) for step, place, path in places]
            # The reader of another system's file adds rules of its own.
            checks = (_cannot_help,) if workflow.origin else (lambda at: _never_applies(at, codes), _cannot_help)
            for check in checks:
                found = [list(check(at)) for at in rows]
                if all(found):
                    yield from found[0]


def _places(step: Step) -> Iterator[tuple[Command, Path]]:
    if step.map is None:
        yield step, ()
    for index, command in enumerate(step.do):
        yield command, ("do", index)


def _never_applies(at: _RuleAt, codes: PossibleCodes) -> Iterator[Found]:
    rule, place = at.rule, at.place
    if rule.recovery_script is not None and rule.max_retries == 0:
        message = f"{at.title} grants no retry, so its recovery script never runs"
        yield at.found("remediation_never_runs", message, "set 'max_retries', or remove the script")
        return
    if place.max_attempts == 1 and rule.max_retries > 0:
        message = f"{at.title} never applies: 'max_attempts: 1' leaves no attempt for a retry"
        yield at.found("rule_never_applies", message, "raise 'max_attempts', or remove the rule")
        return
    reasons = {code: codes.why_never(place, code) for code in rule.codes if not _is_timed(at, code)}
    never = {code: reason for code, reason in reasons.items() if reason}
    if rule.exit_codes and (reason := codes.why_no_exit_code(place)):
        yield at.found("rule_never_applies", f"{at.title} never applies: {reason}", "match by 'codes'")
    elif rule.exceptions and (reason := codes.why_no_exception(place)):
        yield at.found("rule_never_applies", f"{at.title} never applies: {reason}", "match by 'codes' or 'exit_codes'")
    elif taken := _taken_by_codes(place.rules, rule):
        message = f"{at.title} never applies: a rule for the code {taken} comes first"
        yield at.found("rule_never_applies", message, "remove one of the two rules")
    elif never and len(never) == len(rule.codes):
        code, reason = next(iter(never.items()))
        yield at.found("rule_never_applies", f"{at.title} never applies: {reason}", _hint(code), code)
    elif earlier := _earlier(place.rules, at.number):
        message = f"{at.title} never applies: an earlier rule takes {earlier}"
        yield at.found("rule_never_applies", message, "remove one of the two rules")


def _is_timed(at: _RuleAt, code: str) -> bool:
    """Whether a command of items has a limit on its time that is that of its item or its map."""
    mapped = at.step.map
    return code == "TIMEOUT" and mapped is not None and bool(mapped.item_timeout or at.step.deadline)


def _hint(code: str) -> str:
    if code == "TIMEOUT":
        return "give the step a 'timeout'"
    if code == "VALIDATION_FAILED":
        return "give the step a 'validate'"
    return "name a failure that can happen, or remove the rule"


def _taken_by_codes(rules: tuple[Rule, ...], rule: Rule) -> str:
    """The code for which another rule takes all that this one names: rules for codes are asked before."""
    found = [code_of_exception(known_classes(name)) for name in rule.exceptions if builtin_exception(name) is not None]
    named = {code for one in rules for code in one.codes}
    is_taken = rule.exceptions and len(found) == len(rule.exceptions) and named.issuperset(found)
    return ", ".join(dict.fromkeys(found)) if is_taken else ""


def _earlier(rules: tuple[Rule, ...], index: int) -> str:
    """What earlier rules of the same kind leave nothing of; "" if something is left for this one."""
    rule = rules[index]
    earlier = rules[:index]
    if rule.codes:
        taken = {code for one in earlier for code in one.codes}
        return ", ".join(rule.codes) if taken.issuperset(rule.codes) else ""
    if rule.exit_codes:
        numbers = {number for one in earlier for number in one.exit_codes}
        word = "exit codes" if len(rule.exit_codes) > 1 else "exit code"
        return f"{word} {', '.join(number_ranges(rule.exit_codes))}" if numbers.issuperset(rule.exit_codes) else ""
    if rule.exceptions:
        names = {name for one in earlier for name in one.exceptions}
        is_taken = all(not names.isdisjoint(known_classes(name)) for name in rule.exceptions)
        return ", ".join(rule.exceptions) if is_taken else ""
    if rule.pattern is not None:
        return f"'{rule.pattern}'" if any(one.pattern == rule.pattern for one in earlier) else ""
    return "any failure" if any(one.any for one in earlier) else ""


def _cannot_help(at: _RuleAt) -> Iterator[Found]:
    rule, place = at.rule, at.place
    if rule.max_retries == 0 or rule.recovery_script is not None:
        return
    useless = [code for code in rule.codes if code in _SAME_AGAIN]
    if useless and len(useless) == len(rule.codes):
        message = f"{at.title} cannot help: {_SAME_AGAIN[useless[0]]}"
        yield at.found("retry_cannot_help", message, "remove the rule, or route the failure", useless[0])
    has_limit = place.resources is not None and place.resources.memory is not None
    gets_more = rule.adjust is not None and rule.adjust.memory is not None
    if ("OUT_OF_MEMORY" in rule.codes or "MemoryError" in rule.exceptions) and has_limit and not gets_more:
        message = f"{at.title} retries with the same memory, which was not enough"
        hint = "add 'adjust: {memory: x2, max_memory: …}' to the rule"
        yield at.found("retry_cannot_help", message, hint, "OUT_OF_MEMORY")


def _repeats_side_effect(step: Step, place: Command, path: Path) -> Iterator[Found]:
    if step.undo is not None:
        return
    effect = side_effect(place.action)
    if not effect:
        return
    is_query = bool(traits_of(place.action).query)
    for index, rule in enumerate(place.rules):
        if rule.max_retries > 0 and _may_repeat(rule, is_query):
            message = f"step '{step.name}' {effect}, and a retry does it again"
            hint = "send $MULLIGAN_IDEMPOTENCY_KEY, which is the same for every attempt"
            if effect in ("inserts rows", "changes a column by its own value"):
                hint = "say what to do about rows that are there, such as 'on conflict do nothing'"
            yield Found("retry_repeats_side_effect", message, step, hint, path=(*path, "retry", "rules", index))
            return
    handler = place.on_failure
    if handler is not None and handler.rerun and not is_query:
        message = f"step '{step.name}' {effect}, and its handler runs it again"
        hint = "send $MULLIGAN_IDEMPOTENCY_KEY, which is the same for every attempt"
        yield Found("retry_repeats_side_effect", message, step, hint, path=(*path, "on_failure"))


def _may_repeat(rule: Rule, is_query: bool) -> bool:
    """Whether what was done may have happened when this rule retries."""
    if rule.codes:
        return (
            any(code in COMMIT_UNKNOWN for code in rule.codes) if is_query else not NOTHING_DONE.issuperset(rule.codes)
        )
    return True
