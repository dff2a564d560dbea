"""Findings about single steps: handlers, triage, approvals, limits on time, allowed failures, loops."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from mulligan.analysis.coverage.finding_codes import Found, Path, WhatIsWritten
from mulligan.core.deciding.conditions import edge_mismatch
from mulligan.core.deciding.ladder import delay_seconds
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import failure
from mulligan.core.model.graph import Arc, Graph, Node
from mulligan.core.model.text.formatting import format_duration
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import (
    END,
    MAX_VISITS_DEFAULT,
    SCRIPT_TIMEOUT_SECONDS,
    Command,
    Expression,
    Handler,
    Step,
    Workflow,
)

# The last command of a shell text cannot fail.
_IGNORES_FAILURE = lazy_regex(r"(?:\|\||;|\n)\s*(?:true|:|exit\s+0)\s*;?\s*$")
_RECOVERING = ("recovery", "fallback")
# A rule may grant a million retries: the answer is the same after these.
_RETRIES_COUNTED_MAX = 1000


def step_findings(workflow: Workflow, graph: Graph, written: WhatIsWritten) -> Iterator[Found]:
    """What is wrong with single steps."""
    readers = _readers(workflow)
    for node in graph.nodes.values():
        step = node.step
        yield from _lost_handlers(step)
        yield from _endless_waits(step, workflow)
        yield from _times(step, workflow)
        if step.continue_on_error:
            yield from _reads_of_allowed(step, readers.get(step.name, []) + readers.get(step.sweep, []))
        yield from _loops(node, graph, written, workflow.origin)


# -- handlers -----------------------------------------------------------------------------


def _commands(step: Step) -> Iterator[tuple[Command, Path]]:
    yield step, ()
    yield from ((command, ("do", index)) for index, command in enumerate(step.do))


def _lost_handlers(step: Step) -> Iterator[Found]:
    """A handler that always succeeds: the step is recovered although what should repair it failed."""
    for place, path in _commands(step):
        handler = place.on_failure
        # Declared files must be there after a recovery: then something is asked of the result of the handler.
        if handler is None or handler.strategy not in _RECOVERING or handler.rerun or place.writes:
            continue
        if reason := _why_lost(handler):
            message = f"the handler of '{step.name}' cannot fail: {reason}, so the step always counts as recovered"
            hint = "remove what hides the failure, or say 'strategy: cleanup'"
            yield Found("handler_failure_lost", message, step, hint, path=(*path, "on_failure"))


def _why_lost(handler: Handler) -> str:
    """Why no failure of its commands counts; "" if one does."""
    if all(command.continue_on_error for command in handler.commands):
        return "'continue_on_error' allows its commands to fail"
    last = handler.commands[-1]
    # What an earlier command fails with counts, and ends the handler.
    does_work = [command for command in handler.commands if not command.continue_on_error]
    text = str(last.action.params.get(traits_of(last.action).script, "")) if last.action is not None else ""
    is_alone = len(does_work) == 1 and does_work[0] is last
    if is_alone and _IGNORES_FAILURE.search(text) and _does_more_than_print(text):
        return "its command ends with one that always succeeds"
    return ""


def _does_more_than_print(text: str) -> bool:
    """Whether the text has a command whose failure could matter: not only `echo` and `true`."""
    words = [part.split()[0] for part in re.split(r"\|\||&&|[;\n|]", text) if part.split()]
    return any(word not in ("true", ":", "exit", "echo", "printf", "rm", "cat") for word in words)


# -- waiting for people -------------------------------------------------------------------


def _endless_waits(step: Step, workflow: Workflow) -> Iterator[Found]:
    is_notified = any("needs_person" in rule.on for rule in workflow.notify)
    if is_notified:
        return
    if step.triage is not None and step.triage.timeout is None:
        message = f"a failure of '{step.name}' may wait for a person for ever, and nobody is notified"
        hint = "add 'timeout' and 'default' to 'triage', or 'notify: {on: needs_person, to: …}' to the file"
        yield Found("triage_waits_forever", message, step, hint, path=("triage",))
    action = step.action
    if action is not None and traits_of(action).asks_person and workflow.schedules and "timeout" not in action.params:
        message = f"a scheduled run waits for the approval '{step.name}' for ever, and nobody is notified"
        hint = "add 'timeout' and 'default' to 'approve', or 'notify: {on: needs_person, to: …}' to the file"
        yield Found("approval_never_expires", message, step, hint, path=("approve",))
    if action is not None and traits_of(action).awaits_event and workflow.schedules and "timeout" not in action.params:
        message = f"a scheduled run waits for the event of '{step.name}' for ever"
        yield Found("event_never_comes", message, step, "add 'timeout' to 'wait'", path=("wait",))


# -- time ---------------------------------------------------------------------------------


def _times(step: Step, workflow: Workflow) -> Iterator[Found]:
    limit = workflow.timeout
    if limit is None:
        return
    of_triage = step.triage.timeout if step.triage is not None else None
    limits: tuple[tuple[Path, float | None], ...] = (
        (("timeout",), _own_timeout(step)),
        (("deadline",), step.deadline),
        (("triage", "timeout"), of_triage),
    )
    for path, seconds in limits:
        if seconds is not None and seconds > limit:
            what = f"the triage of '{step.name}'" if path[0] == "triage" else f"'{step.name}'"
            message = (
                f"{what} has a {path[-1]} of {format_duration(seconds)}, and the run ends after "
                f"{format_duration(limit)}: what should follow never happens"
            )
            hint = f"make the {path[-1]} shorter than the timeout of the run"
            yield Found("timeout_never_strikes", message, step, hint, path=path)
            return
    for place, where in _commands(step):
        worst = worst_seconds(place)
        if step.deadline is not None:
            worst = min(worst, step.deadline)
        if worst > limit:
            message = (
                f"the attempts of '{step.name}' can take {format_duration(worst)}, and the run ends after "
                f"{format_duration(limit)}: its last retries never happen"
            )
            hint = "retry less often or with shorter delays, set a 'deadline', or give the run more time"
            yield Found("worst_case_exceeds_timeout", message, step, hint, path=(*where, "retry"))
            return


def _own_timeout(step: Step) -> float | None:
    action = step.action
    if action is not None and (traits_of(action).asks_person or traits_of(action).awaits_event):
        found = action.params.get("timeout")
        return found if isinstance(found, int | float) else None
    return step.timeout


def worst_seconds(place: Command) -> float:
    """The longest time that the attempts of a visit take: each to its timeout, with all delays and scripts.

    Without a timeout an attempt counts as no time, so that this is never too much.
    """
    timeout, total, granted = place.timeout or 0.0, place.timeout or 0.0, 0
    bound = place.max_attempts - 1 if place.max_attempts is not None else None
    for rule in place.rules:
        longest = timeout
        bounds = [bound, rule.max_attempts - 1 if rule.max_attempts is not None else None, _RETRIES_COUNTED_MAX]
        granted_max = min(one for one in bounds if one is not None)
        for number in range(1, rule.max_retries + 1):
            if granted >= granted_max:
                break
            granted += 1
            adjust = rule.adjust
            if adjust is not None and adjust.timeout is not None:
                longest = min(longest * adjust.timeout, adjust.max_timeout or float("inf"))
            script = rule.recovery_script
            waits = delay_seconds(msgspec.structs.replace(rule.backoff, jitter=0.0), number, "", {})
            is_own = script is not None and script.timeout != SCRIPT_TIMEOUT_SECONDS
            scripted = script.timeout or 0.0 if script is not None and is_own else 0.0
            total += longest + max(waits, scripted)
    return min(total, place.deadline) if place.deadline is not None else total


# -- allowed failures ---------------------------------------------------------------------


def _readers(workflow: Workflow) -> dict[str, list[tuple[Step, str]]]:
    """By step or matrix: who reads its output, and in which expression."""
    found: dict[str, list[tuple[Step, str]]] = {}
    for step in workflow.steps:
        for expression in _expressions(step):
            for name in expression.reads:
                if name.startswith("steps."):
                    found.setdefault(name.removeprefix("steps."), []).append((step, expression.source))
    return found


def _expressions(step: Step) -> Iterator[Expression]:
    """The expressions in what a step does. Those of handlers and scripts are left out: they run after a failure."""
    for command in (step, *step.do):
        templates = [*(command.action.bindings.values() if command.action is not None else ()), *command.env.values()]
        yield from (part for template in templates for part in template.parts if isinstance(part, Expression))
    if step.when is not None:
        yield step.when
    if step.map is not None and step.map.over is not None:
        yield step.map.over


def _reads_of_allowed(step: Step, readers: list[tuple[Step, str]]) -> Iterator[Found]:
    """Steps that read the output of one that may fail, and never ask whether there is one."""
    name = step.sweep or step.name
    by_reader: dict[str, list[str]] = {}
    for reader, source in readers:
        by_reader.setdefault(reader.name, []).append(source)
    for named, sources in by_reader.items():
        if any(_asks_whether(source) for source in sources) or not any(".output" in source for source in sources):
            continue
        message = f"'{step.name}' may fail, and '{named}' reads its output, which is then null"
        hint = f"ask first: 'when: steps.{name}.status == \"completed\"', or give it a handler with a fallback"
        yield Found("allowed_failure_read", message, step, hint, path=("continue_on_error",))
        return


def _asks_whether(source: str) -> bool:
    """Whether an expression says what holds without an output."""
    return bool(re.search(r"\.status\b|\.failure\b|\bnull\b|\bhas\(|\?|\.failed\b|\.orValue\b|\bdefault\(", source))


# -- loops --------------------------------------------------------------------------------


def _loops(node: Node, graph: Graph, written: WhatIsWritten, origin: str) -> Iterator[Found]:
    for arc in node.arcs:
        if arc.is_loop and arc.edge.on != "failure":
            causes = _failures_within(graph, arc)
            if causes is None:
                yield from _endless_loop(node, arc, graph)
            elif causes and not origin:
                yield from _costly_loop(causes[0], graph.nodes[arc.to].step, ("next", arc.edge.index), node, written)
        elif arc.edge.on == "failure" and (arc.is_loop or arc.edge.then == "rerun"):
            again = graph.nodes[arc.to].step if arc.is_loop else node.step
            if not (arc.edge.then == "rerun" and _has_further_route(node, arc)):
                yield from _costly_loop(node.step, again, ("next", arc.edge.index), node, written)


def _failures_within(graph: Graph, loop: Arc) -> list[Step] | None:
    """The steps whose failure leads round a loop; None if it is gone round without one.

    Those of people are left out: a refused approval is not repeated by itself.
    """
    if loop.source in _after_success(graph, loop.to):
        return None
    body = {loop.to, *graph.between((loop.to,), {loop.source})}
    found = [graph.nodes[name].step for name in body if any(arc.edge.on == "failure" for arc in graph.nodes[name].arcs)]
    return [] if any(traits_of(step.action).asks_person for step in found) else found


def _after_success(graph: Graph, start: str) -> set[str]:
    """Every step that a run may reach from `start` without a failure and without a loop, itself included."""
    seen, stack = {start}, [start]
    while stack:
        node = graph.nodes[stack.pop()]
        targets = [arc.to for arc in node.arcs if arc.edge.on != "failure" and not arc.is_loop and arc.to != END]
        targets += [name for name, _ in node.dependents]
        targets += [name for barrier in node.barriers for name in barrier.targets]
        stack += [name for name in targets if name not in seen]
        seen.update(targets)
    return seen


def _endless_loop(node: Node, arc: Arc, graph: Graph) -> Iterator[Found]:
    """A loop that nothing leaves: no step of it has a condition or a choice."""
    body = {arc.to, *graph.between((arc.to,), {node.step.name})} - {node.step.name}
    if _may_pass(node, arc) or any(_may_leave(graph.nodes[name]) for name in body):
        return
    if node.step.when is not None or _routes_limit(graph.nodes[arc.to].step):
        return
    message = f"the loop from '{node.step.name}' back to '{arc.to}' has no condition: it ends with LOOP_LIMIT"
    hint = "put 'when' on the edge, or 'take: first' and the way out before it, or route LOOP_LIMIT"
    yield Found("loop_spends_budget", message, node.step, hint, "LOOP_LIMIT", ("next", arc.edge.index))


def _may_pass(node: Node, loop: Arc) -> bool:
    """Whether the step may complete without taking the loop edge, which is the only one taken if it is."""
    earlier = node.by_priority[: node.by_priority.index(loop)]
    may_be_skipped = node.step.take == "first" and any(arc.edge.on == "success" for arc in earlier)
    return loop.edge.when is not None or (may_be_skipped and loop.edge.on == "success")


def _may_leave(node: Node) -> bool:
    step = node.step
    is_choice = step.take == "first" and sum(arc.edge.on == "success" for arc in node.arcs) > 1
    return step.when is not None or is_choice or any(arc.edge.when is not None for arc in node.arcs)


def _has_further_route(node: Node, arc: Arc) -> bool:
    """Whether another route takes the failure when no visit is left for a rerun."""
    later = node.by_priority[node.by_priority.index(arc) + 1 :]
    return any(other.edge.on == "failure" and other.edge.handles and other.to != END for other in later)


def _costly_loop(failing: Step, again: Step, path: Path, node: Node, written: WhatIsWritten) -> Iterator[Found]:
    """A failure that stays repeats everything until the default number of visits is spent."""
    if again.max_visits != MAX_VISITS_DEFAULT or written.has(again, "max_visits", otherwise=False):
        return
    if _routes_limit(again) or _is_decided_by_others(failing):
        return
    attempts = MAX_VISITS_DEFAULT * (1 + failing.retries_max)
    times = f"{MAX_VISITS_DEFAULT} times" + (f", with {attempts} attempts" if attempts > MAX_VISITS_DEFAULT else "")
    message = f"a failure of '{failing.name}' that stays repeats '{again.name}' {times}, which is only the default"
    hint = f"set 'max_visits' of '{again.name}', or route LOOP_LIMIT"
    yield Found("loop_spends_budget", message, node.step, hint, path=path)


def _routes_limit(step: Step) -> bool:
    """Whether something follows from the visit that is one too many."""
    limit = failure("LOOP_LIMIT")
    names_it = (edge for edge in step.edges if edge.on == "failure" and edge.handles and "LOOP_LIMIT" in edge.codes)
    return step.continue_on_error or any(edge.to != END and not edge_mismatch(edge, limit) for edge in names_it)


def _is_decided_by_others(step: Step) -> bool:
    """Whether each failure is decided by a person or an agent: then nothing repeats by itself."""
    return step.triage is not None and (step.triage.when != "unmatched" or not step.rules)
