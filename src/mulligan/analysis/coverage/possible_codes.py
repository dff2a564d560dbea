"""Which failure codes can never happen to a place, and why: a rule or a route that names one waits in vain.

A step may report codes of its own, so this says "never" only where that is certain, or where a step that reports the
code would be very unusual: a shell text that never mentions $MULLIGAN_ERROR and a code of the `http` action. Actions
that packages add may fail with any code.
"""

from __future__ import annotations

from collections.abc import Callable

from mulligan.core.model.actions import is_group, traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Command, Step, Workflow

# A step reports codes of its own by writing to the file that this variable names.
_REPORT_VARIABLE = "MULLIGAN_ERROR"
_OF_APPROVALS = frozenset({"APPROVAL_REFUSED", "APPROVAL_EXPIRED"})
_OF_HTTP = frozenset({"HTTP_4XX", "HTTP_5XX", "HTTP_429"})
_OF_PROCESSES = frozenset({"EXIT_NONZERO", "SIGNALED", "OUT_OF_MEMORY", "WORKER_LOST", "NO_CAPACITY"})
# Attached to another failure, or of a run that is being stopped: no rule and no route is asked about it.
_NEVER_CLIMBS = {
    "UNDO_FAILED": "a failed undo is recorded, and nothing follows from it in this round",
    "BUDGET_UNREPORTED": "it is a warning",
    "RUN_TIMEOUT": "a run whose time is up starts no step again",
    "CANCELLED": "a cancelled run starts no step again",
    "INTERRUPTED": "an interrupted run goes on with 'mulligan resume', and no rule is asked",
}
# What a key of a step asks for: only then it has the code.
_ASKED: dict[str, Callable[[Command], bool]] = {
    "TIMEOUT": lambda place: place.timeout is not None or place.deadline is not None or _may_lack_event(place),
    "OUTPUT_INVALID": lambda place: place.action is not None and "schema" in place.action.params,
    "OUTPUT_MISSING": lambda place: bool(place.writes),
    "VALIDATION_FAILED": lambda place: place.validate is not None or place.validator is not None,
    "TOOL_FAILED": lambda place: place.tools is not None,
    "TURN_LIMIT": lambda place: place.tools is not None,
}


def _may_lack_event(place: Command) -> bool:
    """Whether it fails if no event has come in time."""
    action = place.action
    if action is None or not traits_of(action).awaits_event:
        return False
    return "timeout" in action.params and "default" not in action.params


class PossibleCodes:
    """Answers for the places of one workflow."""

    def __init__(self, workflow: Workflow, graph: Graph | None = None) -> None:
        self._workflow = workflow
        self._has_graph = graph is not None
        # The steps that a run may visit more than once, as far as the graph is known.
        self.revisited = _revisited(graph) if graph is not None else frozenset()

    def why_never(self, place: Command, code: str, *, is_route: bool = False) -> str:
        """Why a failure of this place never has the code; "" if it may have it."""
        if code in _NEVER_CLIMBS:
            return _NEVER_CLIMBS[code]
        if is_group(place.action):
            return ""  # it fails as its last failed step does
        return self._by_engine(place, code, is_route) or self._by_action(place, code)

    def why_no_exit_code(self, place: Command) -> str:
        """Why a failure of this place never has an exit code; "" if it may have one."""
        action = place.action
        if isinstance(place, Step) and place.map is not None:
            return "" if place.map.lister is not None else "a map fails with ITEMS_FAILED, whatever its items fail with"
        found = traits_of(action)
        return "" if action is None or is_group(action) or found.has_exit_code else f"{found.noun} has no exit code"

    def why_no_exception(self, place: Command) -> str:
        """Why a failure of this place has no class of an exception; "" if it may have one."""
        action = place.action
        if isinstance(place, Step) and place.map is not None:
            return "" if place.map.lister is not None else "a map fails with ITEMS_FAILED, whatever its items fail with"
        found = traits_of(action)
        is_possible = action is None or is_group(action) or found.has_exceptions
        return "" if is_possible else f"{found.noun} raises no exception of Python code"

    def _by_engine(self, place: Command, code: str, is_route: bool) -> str:
        """Codes that only the engine gives."""
        if code == "HANDLER_FAILED":
            has_handler = place.on_failure is not None or bool(place.on_success)
            if has_handler and (is_route or place.on_success):
                return ""
            return "it is the code of a failed handler, and only routes see it" if has_handler else "it has no handler"
        if code == "LOOP_LIMIT" and self._has_graph:
            return "" if isinstance(place, Step) and place.name in self.revisited else "no loop leads to it"
        if code == "NO_ROUTE" and isinstance(place, Step) and place.no_match != "fail":
            return "it does not say 'no_match: fail'"
        if code == "CIRCUIT_OPEN":
            breaker = self._workflow.breakers.get(place.breaker) if place.breaker else None
            if breaker is None:
                return "no breaker guards it"
            return "" if breaker.when_open == "fail" else f"it waits while the breaker '{place.breaker}' is open"
        return ""

    def _by_action(self, place: Command, code: str) -> str:
        if isinstance(place, Step) and place.map is not None:
            return _of_map(place, code)
        if place.action is None:
            return ""
        found = traits_of(place.action)
        # A shell text may say itself that it reports codes; none of them is that of an approval.
        if _REPORT_VARIABLE in str(place.action.params.get(found.script, "")) and code not in _OF_APPROVALS:
            return ""
        if code == "APPROVAL_EXPIRED" and found.asks_person:
            if "timeout" not in place.action.params:
                return "the approval has no 'timeout'"
            return "its default is to approve" if place.action.params.get("default") == "approve" else ""
        if code in found.only_if_asked and not _ASKED[code](place):
            return found.only_if_asked[code]
        return found.never.get(code, "")


def _revisited(graph: Graph) -> frozenset[str]:
    found: set[str] = set()
    for name, node in graph.nodes.items():
        if node.step.join == "each":
            found |= graph.behind((name,))
        for arc in node.arcs:
            if arc.edge.then == "rerun":
                found |= {name, arc.to}
            if arc.is_loop and arc.to not in found:
                found |= graph.behind((arc.to,))
    return frozenset(found)


def _of_map(step: Step, code: str) -> str:
    """A map fails with ITEMS_FAILED, or as the command that lists its items does."""
    assert step.map is not None
    if code == "ITEMS_FAILED":
        is_collected = step.map.on_item_failure == "collect"
        has_limit = step.map.max_failures is not None or step.map.failure_threshold is not None
        # Without 'collect_critical' a critical failure of an item fails it, and any command may report one.
        is_complete = is_collected and not has_limit and step.map.collect_critical
        return "with 'on_item_failure: collect' it completes whatever items fail" if is_complete else ""
    if step.map.lister is not None:
        return ""
    if code in _OF_HTTP or code in _OF_PROCESSES or code in ("CONNECTION", "CHILD_FAILED", "EXCEPTION"):
        return "a map fails with ITEMS_FAILED, whatever its items fail with"
    return ""
