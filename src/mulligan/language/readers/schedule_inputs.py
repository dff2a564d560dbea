"""Placeholders in the inputs of a schedule: `${schedule.date}` is the date of the instant that starts the run."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Names
from typing import Any

from mulligan.core.model.workflow import Expression, Template
from mulligan.core.schedules.instant_names import FIELDS, ROOT
from mulligan.errors import ExpressionFailed, InputInvalid
from mulligan.language import expressions
from mulligan.language.expressions import ExpressionRefused, Placeholder
from mulligan.language.scope import span_of_name
from mulligan.language.text.nodes import Mapping, Node, Sequence, Source
from mulligan.language.text.suggestions import did_you_mean

# What other systems call them. Airflow's execution date was the beginning of the interval that ends with the instant.
_MEANT = {
    **dict.fromkeys("execution_date data_interval_start start interval_start last".split(), "previous"),
    **dict.fromkeys(
        "data_interval_end end interval_end scheduled_time scheduled_start_time time at".split(), "instant"
    ),
    **dict.fromkeys("logical_date now timestamp datetime fire_time trigger_time partition_key".split(), "instant"),
    **dict.fromkeys("ds day today".split(), "date"),
    **dict.fromkeys("yesterday yesterday_ds prev_ds prev_date".split(), "previous_date"),
    **dict.fromkeys("tomorrow tomorrow_ds".split(), "next_date"),
    **dict.fromkeys("zone tz".split(), "timezone"),
}
_ALONE = (
    f"the inputs of a schedule can read '{ROOT}' alone, such as ${{{ROOT}.date}}; for the characters '${{' write '$${{'"
)


def has_placeholders(value: Any) -> bool:
    """Whether a text in a JSON value contains `${`."""
    return any("${" in text for text in _texts(value))


def check_schedule_inputs(inputs: Names[str, Any]) -> None:
    """Refuse a placeholder that cannot be read, or that reads anything but `schedule`."""
    for name, value in inputs.items():
        for text in _texts(value):
            try:
                _template(text)
            except ExpressionRefused as refused:
                hint = refused.hint
                raise InputInvalid(f"input '{name}': {refused.message}", hint=hint, input=name) from None


def check_schedule_nodes(node: Node, source: Source) -> None:
    """The same for inputs in a file: a refusal is noted, and points at the name."""
    if isinstance(node, Mapping):
        for _, value in node.entries.values():
            check_schedule_nodes(value, source)
    elif isinstance(node, Sequence):
        for item in node.items:
            check_schedule_nodes(item, source)
    elif isinstance(node.value, str):
        try:
            _template(node.value)
        except ExpressionRefused as refused:
            said = refused.message, node, refused.offset, refused.length
            source.note(source.refuse_in("expression", *said, hint=refused.hint))


def fill_schedule_inputs(inputs: Names[str, Any], names: Names[str, Any]) -> dict[str, Any]:
    """The inputs of a run: the placeholders evaluated, with `names` as the fields of `schedule`."""
    return {name: _fill(name, value, {ROOT: names}) for name, value in inputs.items()}


def _fill(name: str, value: Any, names: Names[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(name, inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(name, inner, names) for inner in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    try:
        return expressions.render(_template(value), names)
    except (ExpressionFailed, ExpressionRefused) as error:
        raise InputInvalid(f"input '{name}': {error.message}", hint=error.hint, input=name) from None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _template(text: str) -> Template:
    """A text with checked placeholders. `ExpressionRefused`."""
    if "${" not in text:
        return Template((text,))
    parts = expressions.find_placeholders(text)
    return Template(tuple(part if isinstance(part, str) else _checked(part) for part in parts))


def _checked(part: Placeholder) -> Expression:
    expression = expressions.check(part.source, offset=part.source_offset)
    begin = part.source_offset + len(part.source) - len(part.source.lstrip())
    for path in expressions.paths(expression):
        if path[0] != ROOT:
            meant = f"did you mean '{ROOT}.{_MEANT.get(path[0], path[0])}'?"
            hint = meant if path[0] in _MEANT or path[0] in FIELDS else did_you_mean(path[0], [ROOT]) or _ALONE
            span = span_of_name(expression.source, begin, path, 0)
            raise ExpressionRefused(f"'{path[0]}' is not known here", *span, hint=hint)
        if len(path) > 1 and path[1] not in FIELDS:
            known = _MEANT.get(path[1])
            hint = f"did you mean '{known}'?" if known else did_you_mean(path[1], FIELDS)
            hint = hint or f"it has {', '.join(FIELDS)}"
            span = span_of_name(expression.source, begin, path, 1)
            raise ExpressionRefused(f"'{ROOT}' has no '{path[1]}'", *span, hint=hint)
    return expression
