"""Durations as shapes: how long to wait, and how long something may take."""

from __future__ import annotations

from typing import Any

from mulligan.language.nodes import Node, Scalar, Source, describe
from mulligan.language.quantities import DURATION_PATTERN, meant_duration, parse_duration
from mulligan.language.shapes import Value


class DurationShape(Value, frozen=True):
    """A duration; one in another spelling is refused with ours."""

    def hint(self, node: Scalar) -> str:
        meant = meant_duration(node.text)
        return f"write {meant}" if meant else super().hint(node)


class LimitShape(DurationShape, frozen=True):
    """How long something may take: with no time at all it would be over before it began."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        seconds = super().read(node, label, source)
        if not seconds:
            hint = f"leave {label} out, or write a time such as 30s"
            raise source.refuse("type", f"{label} is {describe(node)}, which leaves no time", node, hint=hint)
        return seconds


_EXPECTED = "a duration such as 30s"
_TEXT = {"type": "string", "pattern": DURATION_PATTERN}
DURATION = DurationShape(_EXPECTED, parse_duration, {"anyOf": [_TEXT, {"type": "number", "minimum": 0}]})
# A text without a digit from 1 to 9 is nothing.
_SOME_TEXT = {**_TEXT, "not": {"pattern": "^[^1-9]*$"}}
LIMIT = LimitShape(_EXPECTED, parse_duration, {"anyOf": [_SOME_TEXT, {"type": "number", "exclusiveMinimum": 0}]})
