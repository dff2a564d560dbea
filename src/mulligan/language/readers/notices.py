"""`notify`: which events of a run are sent to which targets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mulligan.core.model.text.durations import DURATION_SECONDS_MAX
from mulligan.core.model.workflow import NOTICE_KINDS, NoticeRule
from mulligan.language.keys.value_schemas import LIMIT, STEP_NAME, Choice, Fields, Key, ListOf, Record
from mulligan.language.text.nodes import Source

# Of a run: those of its file, its own, and those of its project.
RULES_MAX = 200
TARGETS_MAX, TARGET_CHARS_MAX = 20, 200
_TARGET = re.compile(r"[A-Za-z0-9_-]+")
NOTIFY = Record(
    "notify",
    {
        "on": Key(
            ListOf(Choice(NOTICE_KINDS), or_one=True, at_least=1),
            "the events: needs_person (it waits for a decision or an approval), failed, completed, degraded (completed "
            "with failures that were handled), recovered (completed after a failure), late",
            is_required=True,
        ),
        "to": Key(
            ListOf(STEP_NAME, or_one=True, at_least=1),
            "names of targets, which the configuration of the server has under [targets.NAME]",
            is_required=True,
        ),
        "late_after": Key(LIMIT, "with 'late': how long a run may last before it is late"),
    },
)


def read_notices(forms: Iterable[Fields], source: Source) -> tuple[NoticeRule, ...]:
    """The rules of a file. What cannot be meant is noted."""
    rules: list[NoticeRule] = []
    for form in forms:
        rule = NoticeRule(
            on=tuple(dict.fromkeys(form.get("on", ()))),
            to=tuple(dict.fromkeys(form.get("to", ()))),
            late_after=form.get("late_after"),
        )
        if "late" in rule.on and "late_after" not in form:
            message, hint = "'late' needs to know after how long a run is late", "add 'late_after: 2h'"
            source.note(source.refuse("missing_key", message, form.node, hint=hint))
        if "late" not in rule.on and "late_after" in form:
            message, hint = "'late_after' has no effect without 'late' in 'on'", "add 'late' to 'on'"
            source.note(source.refuse("notify", message, form.key("late_after"), hint=hint))
        if len(rule.to) > TARGETS_MAX:
            message = f"{len(rule.to)} targets are too many: a rule has at most {TARGETS_MAX}"
            source.note(source.refuse("notify", message, form.key("to"), hint="one target may have several addresses"))
        rules.append(rule)
    return tuple(rules)


def rules_problem(rules: Sequence[NoticeRule]) -> str:
    """What is wrong with rules that no file of ours was read as; "" if nothing is."""
    if len(rules) > RULES_MAX:
        return f"{len(rules)} rules for notices are too many: there may be at most {RULES_MAX}"
    for rule in rules:
        if not rule.on or not 0 < len(rule.to) <= TARGETS_MAX:
            return f"a rule for notices says 'on' which events and 'to' which targets, at most {TARGETS_MAX}"
        if any(len(name) > TARGET_CHARS_MAX or _TARGET.fullmatch(name) is None for name in rule.to):
            return "a target of notices has a name of letters, digits, '_' and '-'"
        if ("late" in rule.on) != (rule.late_after is not None):
            return "'late' and 'late_after' belong together in a rule for notices"
        if rule.late_after is not None and not 0 < rule.late_after <= DURATION_SECONDS_MAX:
            return f"{rule.late_after:g}s is not a time after which a run is late"
    return ""
