"""Where a flow goes: branches on a value, routes between steps."""

from __future__ import annotations

from mulligan.flows.context import call_site, current, given, refuse
from mulligan.flows.references import OPTIONAL, TERNARY, Reference, conditional, merge, reads_of, source_of
from mulligan.flows.static_types import overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, TypeVar

    from mulligan.flows.recording import Recorder
    from mulligan.flows.references import Reads
    from mulligan.flows.retries import Duration

    T = TypeVar("T")
    S = TypeVar("S")


@overload
def branch(condition: object, then: Callable[[], T], otherwise: Callable[[], S]) -> T | S: ...
@overload
def branch(condition: object, then: Callable[[], T], otherwise: None = None) -> T | None: ...
def branch(condition: object, then: Any, otherwise: Any = None) -> Any:
    """Run the steps of `then` if the condition holds, and those of `otherwise` if it does not.

        result = mulligan.branch(mulligan.size(rows) > 0, lambda: load(rows), lambda: alert("no rows"))

    Both are functions without parameters, which may call any number of steps. The steps of the other branch are
    skipped. The reference is what the branch that ran returned.
    """
    recorder = current("mulligan.branch")
    for function in (then, otherwise):
        if function is not None and (isinstance(function, Reference) or not callable(function)):
            hint = "write mulligan.branch(condition, lambda: load(rows), lambda: alert())"
            refuse("branch", "a branch is a function, and here a step is called already", hint=hint)
    held = recorder.condition(condition)
    reads: Reads = dict(reads_of(held))
    value = _branch(recorder, held, then, reads)
    other = None if otherwise is None else _branch(recorder, ~held, otherwise, reads)
    if not _is_value(value) or not _is_value(other):
        hint = "let each branch return what one of its steps returned, or a plain value"
        refuse("branch", "a branch returns several values", hint=hint)
    return Reference(source_of(conditional(held, value, other)), reads, TERNARY)


def _branch(recorder: Recorder, condition: Reference, function: Callable[[], Any], reads: Reads) -> Any:
    """Record the steps of one branch. Who reads its result waits for all of them, and for what they wait for."""
    first = len(recorder.records)
    recorder.conditions.append(condition)
    try:
        value = function()
    finally:
        recorder.conditions.pop()
    made = recorder.records[first:]
    inside = {record.name for record in made}
    for record in made:
        merge(reads, {step: on for step, on in record.reads.items() if step not in inside})
    merge(reads, dict.fromkeys(inside, OPTIONAL))
    if isinstance(value, Reference):
        merge(reads, {step: on for step, on in reads_of(value).items() if step not in inside})
    return value


def _is_value(value: Any) -> bool:
    return not isinstance(value, list | tuple | dict | set)


def route(
    source: Any,
    target: Any,
    /,
    *,
    on: Literal["success", "failure", "always"] | None = None,
    when: object = None,
    then: Literal["rerun", "continue"] | None = None,
    codes: Sequence[str] | str | None = None,
    exit_codes: Sequence[int | str] | int | str | None = None,
    priority: int | None = None,
    handles: bool | None = None,
    delay: Duration | None = None,
    factor: float | None = None,
    max_delay: Duration | None = None,
    jitter: float | None = None,
) -> None:
    """Lead from one step to another, like `next` in a file. A route to an earlier step is a loop.

        mulligan.route(verdict, improved, when=verdict["score"] < 8)
        mulligan.route(improved, verdict)

    Both are what steps of this flow returned. A step that a route leads to runs only when the route is taken.
    """
    keys = given(locals(), "source", "target")
    recorder, site = current("mulligan.route"), call_site()
    if when is not None:
        keys["when"] = recorder.condition(when)
    recorder.route(recorder.record_of(source, "mulligan.route"), target, keys, site)
