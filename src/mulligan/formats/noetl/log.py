"""Write the log of a run with NoETL's event names, for tools that read these.

    {"event": "step_failed", "event_type": "step.exit", "node_name": "load", "status": "FAILED", …}

`event` is NoETL's former name of the event, `event_type` the present one. A fact that NoETL has no name for is left
out; its consequences name the last line before it as their parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from mulligan.core.model import events as e
from mulligan.core.model.place_keys import step_name

Line: TypeAlias = dict[str, Any]

# The last event of a failed run names at most so many failed steps.
_NAMED_MAX = 3
_ENVELOPE = frozenset({"result", "ctx", "next", "status"})


def noetl_events(log: Iterable[e.Entry]) -> Iterator[Line]:
    """The events as NoETL names them, in the order of the log."""
    writer = _Writer()
    for entry in log:
        yield from writer.lines(entry)


class _Writer:
    """Writes one log. Remembers which steps failed, which steps are loops, and the last line for each entry."""

    def __init__(self) -> None:
        self._run_id = 0
        self._failed: dict[str, None] = {}
        self._loops: set[str] = set()
        # The id of the line for each entry: its last line, or that of the entry that caused it.
        self._line_of: dict[int, str] = {}

    def lines(self, entry: e.Entry) -> Iterator[Line]:
        self._remember(entry.fact)
        parent = self._line_of.get(entry.caused_by)
        for number, line in enumerate(_lines_of(entry.fact, self._loops, list(self._failed))):
            event_id = f"{entry.seq}.{number}" if number else str(entry.seq)
            yield {
                "event_id": event_id,
                "parent_event_id": parent,
                "execution_id": str(self._run_id),
                "created_at": entry.at.isoformat().replace("+00:00", "Z"),
                **line,
            }
            parent = event_id
        if parent is not None:
            self._line_of[entry.seq] = parent

    def _remember(self, fact: e.Fact) -> None:
        if isinstance(fact, e.RunStarted):
            self._run_id = fact.run_id
        elif isinstance(fact, e.MapExpanded):
            self._loops.add(fact.place)
        elif isinstance(fact, e.RunReopened):
            self._failed.clear()
        elif isinstance(fact, e.StepFailed) and fact.routed_to_end:
            self._failed[fact.step] = None
        elif isinstance(fact, e.StepEntered):
            self._failed.pop(fact.step, None)


def _lines_of(fact: e.Fact, loops: set[str], failed: list[str]) -> Iterator[Line]:
    """The events of NoETL that a fact stands for; none where NoETL has no name for it."""
    if isinstance(fact, e.RunCompleted | e.RunFailed | e.RunCancelled):
        yield from _run_ended(fact, failed)
    elif isinstance(fact, e.StepCompleted | e.StepFailed) and fact.step in loops:
        status = "FAILED" if isinstance(fact, e.StepFailed) else "COMPLETED"
        yield _line("iterator_completed", "loop.done", fact.step, status)
        yield _OF_FACTS[type(fact)](fact)
    elif isinstance(fact, e.RunStarted):
        inputs = {"workload": fact.inputs, "workflow": fact.workflow}
        yield _line("playbook_initialized", "playbook.initialized", fact.workflow, "INITIALIZED", meta=inputs)
        yield _line("workflow_initialized", "workflow.initialized", "workflow", "INITIALIZED")
    elif (make_line := _OF_FACTS.get(type(fact))) is not None:
        yield make_line(fact)


def _run_ended(fact: e.RunCompleted | e.RunFailed | e.RunCancelled, failed: list[str]) -> Iterator[Line]:
    """The last two events: the end of the workflow, then that of the playbook."""
    counts = ("total_steps", *(f"{word}_steps_count" for word in ("failed", "handled", "recovered", "skipped")))
    meta = {"evaluated_by_end_step": fact.evaluated_by_end_step, **{key: getattr(fact, key) for key in counts}}
    if isinstance(fact, e.RunCancelled):
        yield _line("execution_cancelled", "execution.cancelled", "workflow", "CANCELLED", meta=meta)
        return
    word = "completed" if isinstance(fact, e.RunCompleted) else "failed"
    whole, short = ("", "") if word == "completed" else (", ".join(failed), ", ".join(failed[:_NAMED_MAX]))
    for of, names in (("workflow", f"Workflow failed at steps: {whole}"), ("playbook", f"Playbook failed: {short}")):
        error = (names if failed else fact.reason) if word == "failed" else None
        result = fact.outputs if of == "playbook" and fact.outputs else None
        yield _line(f"{of}_{word}", f"{of}.{word}", of, word.upper(), meta=meta, error=error, result=result)


def _step_failed(fact: Any) -> Line:
    meta = {"failed_at": fact.failure.at.isoformat().replace("+00:00", "Z") if fact.failure.at else None}
    meta |= {"failure_reason": fact.failure.code, "routed_to_end": fact.routed_to_end}
    meta |= {"original_failed_step": fact.original_failed_step or fact.step, "routed_to": fact.route.to}
    return _line("step_failed", "step.exit", fact.step, "FAILED", meta=meta, error=fact.failure.message)


def _step(event: str, event_type: str, status: str, fact: Any) -> Line:
    output = getattr(fact, "output", None)
    if isinstance(output, dict) and output.keys() >= _ENVELOPE:
        output = output["result"]
    return _line(event, event_type, fact.step, status, result=output)


def _action(event: str, event_type: str, status: str, fact: Any) -> Line:
    """An event of an attempt of a step, or of a place below it."""
    meta = {"attempt": fact.attempt, **({} if fact.place == step_name(fact.place) else {"place": fact.place})}
    return _line(event, event_type, step_name(fact.place), status, meta=meta, error=_error(fact))


def _item(event: str, status: str, fact: Any) -> Line:
    return _line(event, "loop.item", step_name(fact.place), status, meta={"index": fact.index}, error=_error(fact))


def _error(fact: Any) -> str | None:
    failure = getattr(fact, "failure", None)
    return failure.message if failure is not None else None


def _loop(fact: Any) -> Line:
    meta = {"total": len(fact.items or ())}
    return _line("iterator_started", None, step_name(fact.place), "RUNNING", meta=meta)


def _line(event: str, event_type: str | None, node: str, status: str, **more: Any) -> Line:
    present = {key: value for key, value in more.items() if value is not None and value != {}}
    return {"event": event, "event_type": event_type, "node_name": node, "status": status, **present}


_OF_FACTS: dict[type[e.Fact], Callable[[Any], Line]] = {
    e.StepEntered: partial(_step, "step_started", "step.enter", "RUNNING"),
    e.StepCompleted: partial(_step, "step_completed", "step.exit", "COMPLETED"),
    e.StepFailed: _step_failed,
    e.StepCancelled: partial(_step, "step_cancelled", "step.exit", "CANCELLED"),
    e.AttemptScheduled: partial(_action, "action_issued", "command.issued", "PENDING"),
    e.AttemptStarted: partial(_action, "action_started", "command.started", "RUNNING"),
    e.AttemptSucceeded: partial(_action, "action_completed", "call.done", "COMPLETED"),
    e.AttemptFailed: partial(_action, "action_failed", "call.error", "FAILED"),
    e.AttemptCancelled: partial(_action, "action_cancelled", "command.cancelled", "CANCELLED"),
    e.MapExpanded: _loop,
    e.ItemEntered: partial(_item, "iteration_started", "RUNNING"),
    e.ItemCompleted: partial(_item, "iteration_completed", "COMPLETED"),
    e.ItemFailed: partial(_item, "iteration_failed", "FAILED"),
}
