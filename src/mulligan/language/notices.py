"""`notify`: which events of a run are sent to which targets."""

from __future__ import annotations

from collections.abc import Iterable

from mulligan.core.model.workflow import NOTICE_KINDS, NoticeRule
from mulligan.language.nodes import Source
from mulligan.language.shapes import LIMIT, STEP_NAME, Choice, Fields, Key, ListOf, Record

RULES_MAX, TARGETS_MAX = 20, 20
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
        is_late = "late" in rule.on
        if is_late and "late_after" not in form:
            message, hint = "'late' needs to know after how long a run is late", "add 'late_after: 2h'"
            source.note(source.refuse("missing_key", message, form.node, hint=hint))
        if not is_late and "late_after" in form:
            message, hint = "'late_after' has no effect without 'late' in 'on'", "add 'late' to 'on'"
            source.note(source.refuse("notify", message, form.key("late_after"), hint=hint))
        if len(rule.to) > TARGETS_MAX:
            message = f"{len(rule.to)} targets are too many: a rule has at most {TARGETS_MAX}"
            source.note(source.refuse("notify", message, form.key("to"), hint="one target may have several addresses"))
        rules.append(rule)
    return tuple(rules)
