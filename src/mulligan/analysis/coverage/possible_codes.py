"""Which failure codes can never happen to a place, and why: a rule or a route that names one waits in vain.

A step may report codes of its own, so this says "never" only where that is certain, or where a step that reports the
code would be very unusual: a shell text that never mentions $MULLIGAN_ERROR and a code of the `http` action. Actions
that packages add may fail with any code.
"""

from __future__ import annotations

from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import AGENT, ENGINE_ACTIONS, Action, Command, Step, Workflow, is_group

# A step reports codes of its own by writing to the file that this variable names.
_REPORT_VARIABLE = "MULLIGAN_ERROR"
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
_KNOWN_ACTIONS = frozenset({"shell", "python", "http", "sql", AGENT, *ENGINE_ACTIONS})


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
        if action is None or is_group(action) or action.kind in ("shell", "python", AGENT):
            return ""
        return f"{_article(action.kind)} has no exit code" if action.kind in _KNOWN_ACTIONS else ""

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
        if code == "WORKER_LOST" and place.action is not None and place.action.kind in ENGINE_ACTIONS:
            return f"no worker runs {_article(place.action.kind)}"
        return ""

    def _by_action(self, place: Command, code: str) -> str:
        if isinstance(place, Step) and place.map is not None:
            return _of_map(place, code)
        action = place.action
        if action is None or action.kind not in _KNOWN_ACTIONS:
            return ""
        if code == "APPROVAL_REFUSED" or code == "APPROVAL_EXPIRED":
            return _of_approval(action, code)
        if action.kind == "approve" or action.kind == "wait":
            return _of_waiting(place, action.kind, code)
        if action.kind == "workflow":
            return _of_child(place, code)
        if action.kind == "python":
            return ""  # its code may raise a StepError with any code
        return "" if _may_report(action) else self._of_worker(place, action, code)

    def _of_worker(self, place: Command, action: Action, code: str) -> str:
        """For shell, http, sql and agent."""
        what = _article(action.kind)
        is_shell = action.kind == "shell"
        if code == "CHILD_FAILED":
            return f"{what} has no child run"
        if code == "ITEMS_FAILED":
            return f"{what} has no items"
        if code == "REQUIREMENTS_FAILED" and "requirements" not in action.params:
            return f"{what} has no requirements"
        if code in ("TOOL_FAILED", "TURN_LIMIT") and place.tools is None:
            return f"{what} has no tools"
        if code == "BUDGET_EXCEEDED" and action.kind != AGENT:
            return f"{what} spends no budget: it is for agents"
        if code == "OUTPUT_MISSING" and not place.writes and action.kind != AGENT:
            return "it declares no files with 'writes'"
        if code == "EXIT_NONZERO" and action.kind in ("http", "sql"):
            return f"{what} has no exit code"
        if code in _OF_HTTP and action.kind in ("shell", "sql"):
            return f"{what} makes no HTTP request that mulligan sees" if is_shell else f"{what} makes no HTTP request"
        if code == "CONNECTION" and is_shell:
            return f"{what} fails with an exit code"
        if code == "VALIDATION_FAILED" and action.kind in ("shell", "sql"):
            return "" if place.validate is not None or place.validator is not None else "it has no 'validate'"
        if code == "TIMEOUT" and is_shell and place.timeout is None and place.deadline is None:
            return "it has no 'timeout'"
        return ""


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


def _of_approval(action: Action, code: str) -> str:
    if action.kind != "approve":
        return "it asks nobody for an approval"
    if code == "APPROVAL_EXPIRED" and "timeout" not in action.params:
        return "the approval has no 'timeout'"
    if code == "APPROVAL_EXPIRED" and action.params.get("default") == "approve":
        return "its default is to approve"
    return ""


def _of_waiting(place: Command, kind: str, code: str) -> str:
    is_work = code in _OF_HTTP or code in _OF_PROCESSES or code in ("CONNECTION", "CHILD_FAILED", "ITEMS_FAILED")
    if code == "TIMEOUT" and kind == "approve" and place.timeout is None and place.deadline is None:
        return "an approval without an answer fails with APPROVAL_EXPIRED"
    return f"{_article(kind)} runs nothing that could fail so" if is_work else ""


def _of_child(place: Command, code: str) -> str:
    if code in _OF_HTTP or code in _OF_PROCESSES or code in ("CONNECTION", "EXCEPTION", "ITEMS_FAILED"):
        return "a child run that fails is CHILD_FAILED, whatever failed in it"
    if code == "TIMEOUT" and place.timeout is None and place.deadline is None:
        return "it has no 'timeout'"
    return ""


def _may_report(action: Action) -> bool:
    """Whether the step itself says that it reports codes."""
    return action.kind == "shell" and _REPORT_VARIABLE in str(action.params.get("text", ""))


def _article(kind: str) -> str:
    words = {
        "shell": "a shell step",
        "http": "an http step",
        "sql": "an sql step",
        "agent": "an agent",
        "wait": "a wait",
        "approve": "an approval",
        "workflow": "a child run",
    }
    return words.get(kind, f"a step with '{kind}'")
