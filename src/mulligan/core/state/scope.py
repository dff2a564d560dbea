"""The names that an expression reads, gathered from the state: only those that it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from mulligan.core.model.actions import is_added, traits_of
from mulligan.core.model.artifacts import describe_dropped, find_dropped, is_artifact
from mulligan.core.model.breaker_keys import breaker_key, breaker_name
from mulligan.core.model.event_types import StopCause
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.failure_context import FailedSource, failure_context
from mulligan.core.model.place_keys import file_name, item_key
from mulligan.core.model.text.credential_patterns import hide_in
from mulligan.core.model.text.paths import folder_of, literal_prefix
from mulligan.core.model.workflow import END, Action, Command, Expression, Template
from mulligan.core.state.state import FailureRecord, Place, State
from mulligan.core.state.verdict import is_handled
from mulligan.core.state.workspace import lacks_worktree, workspace_view
from mulligan.errors import OutputDropped


class Evaluator(Protocol):
    """Evaluates a checked expression over the names handed to it, or raises `ExpressionFailed`."""

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any: ...

    def condition(self, expression: Expression, names: Mapping[str, Any]) -> bool: ...

    def render(self, template: Template, names: Mapping[str, Any]) -> Any: ...

    def keep(self, name: str, value: Any) -> Any:
        """The value as a fact holds it: a large value is stored as an artifact and replaced by a reference."""


# Values of these types are never large.
_SMALL = frozenset((bool, int, float))


class DecisionContext(msgspec.Struct, eq=False):
    """What a decision reads: the state, the time, and the evaluator of expressions."""

    state: State
    at: datetime
    evaluator: Evaluator

    def may_start(self, place: Place) -> bool:
        """Whether anything may still start at a place: in a stopping run, only cleanup, undo and `end`.

        Of a call that its program does not want any more, only cleanup and undo.

        Nothing starts below a handler that has timed out, and no undo in a run that has no worktree.
        """
        stop = self.state.run.stop
        if not place.parent and stop is None and not place.is_unwanted:
            # Nearly all steps.
            return not place.climb.is_handler_late
        if any(above.climb.is_handler_late for above in self.state.ancestors(place)):
            return False
        if stop is None and not self.state.step_of(place).is_unwanted:
            return True
        return any(
            above.key == END
            or (above.role == "undo" and (stop is None or not (stop.now or lacks_worktree(self.state))))
            or (above.role == "handler" and self.may_clean_up(self.state.places[above.parent]))
            for above in self.state.ancestors(place)
        )

    def may_clean_up(self, place: Place) -> bool:
        """Whether the place has a cleanup handler that runs during a stop; with `cancel --now` none does.

        Nor does one of a run that has no worktree: it would work in the checkout of the user.
        """
        handler, stop = place.spec.on_failure, self.state.run.stop
        if stop is not None and lacks_worktree(self.state):
            return False
        return handler is not None and handler.strategy == "cleanup" and not (stop is not None and stop.now)

    def condition(self, expression: Expression, place: Place, **extra: Any) -> bool:
        return self.evaluator.condition(expression, names(self.state, place, expression.reads, extra))

    def evaluate(self, expression: Expression, place: Place, **extra: Any) -> Any:
        return self.evaluator.evaluate(expression, names(self.state, place, expression.reads, extra))

    def render(self, template: Template, place: Place, **extra: Any) -> Any:
        return self.evaluator.render(template, names(self.state, place, template.reads, extra))

    def fetch(self, value: Any) -> Any:
        """A value of a fact; if it is a reference to an artifact, the content of the artifact."""
        return fetch_artifact(self.evaluator, value)

    def keep(self, place: Place, name: str, value: Any) -> Any:
        """A value that the place produced; a large one is stored under this name and replaced by a reference."""
        if value is None or type(value) in _SMALL:
            return value
        return self.evaluator.keep(f"{self.artifact_folder(place)}/{file_name(name)}.json", value)

    def artifact_folder(self, place: Place) -> str:
        """The folder of what the current attempt of the place has stored."""
        return f"{self.state.run.run_id}/{file_name(place.key)}/{place.visit}/{place.attempt}"

    def bindings(self, command: Command, place: Place) -> dict[str, Any]:
        """The values for the action, environment and folder of this attempt. Secrets stay references."""
        found: dict[str, Any] = {}
        if command.action and command.action.bindings:
            # No worker fetches artifacts for these actions, so their values are fetched here.
            action = traits_of(command.action)
            is_fetched_here = action.runs_nothing
            for name, template in command.action.bindings.items():
                value = self._bind(template, place)
                found[name] = self.fetch(value) if is_fetched_here else value
            if action.is_agent and self.state.workflow.hide_credentials:
                found = {name: _hide_credentials(value) for name, value in found.items()}
        if command.env:
            for name, template in command.env.items():
                found[f"env.{name}"] = self._bind(template, place)
        if command.cwd:
            found["cwd"] = self._bind(command.cwd, place)
        if command.logs:
            for name, template in command.logs.items():
                found[f"logs.{name}"] = self.render(template, place)
        if command.cache_key:
            found[CACHE_KEY] = self.render(command.cache_key, place)
        if command.breaker_key:
            found[BREAKER_KEY] = breaker_key(self.render(command.breaker_key, place))
        if command.file_paths:
            for name, template in command.file_paths.items():
                found[f"{FILE}{name}"] = self.render(template, place)
        for name, template in _paths(command):
            before = literal_prefix(template)
            if before is not None:
                found[f"{FOLDER}{name}"] = folder_of(self.render(before, place))
        return found

    def _bind(self, template: Template, place: Place) -> Any:
        if len(template.parts) == 1 and isinstance(template.parts[0], str):
            return template.parts[0]
        reads = template.reads
        if _includes_secrets(reads):
            return {"${}": [self._late(part, place) for part in template.parts]}
        return self.evaluator.render(template, names(self.state, place, reads, {}))

    def _late(self, part: str | Expression, place: Place) -> Any:
        """A part of a text with a secret in it: a secret stays a reference for the worker, the rest is rendered."""
        if isinstance(part, str):
            return part
        if reads_secrets(part):
            return {"secret": part.source}
        # Rendered as text, so that no value of a user can be mistaken for a reference.
        return self.render(Template(("", part)), place)


# Prefix of the bindings that hold the folder a path must stay in.
FOLDER = "folder."
# Prefix of the bindings that hold the paths of files that a step reads or writes.
FILE = "file."
# The binding that holds the value of `cache: {key: …}`.
CACHE_KEY = "cache.key"
# The binding that holds the key of its breaker, as the name of the breaker shows it.
BREAKER_KEY = "breaker.key"


def breaker_of(state: State, place: Place) -> str:
    """The name of the breaker that guards the current attempt of a place, with its key; "" if none does."""
    if place.spec.breaker is None:
        return ""
    return breaker_name(place.spec.breaker, values_of(state, place).bindings.get(BREAKER_KEY, ""))


def values_of(state: State, place: Place) -> Place:
    """The place whose values the task of a place has: a model is asked with those of its agent's attempt."""
    return state.places[place.parent] if place.role == "model" else place


def _paths(command: Command) -> Iterator[tuple[str, Template]]:
    """The paths of an attempt, by their names in the task."""
    if command.cwd:
        yield "cwd", command.cwd
    if command.logs:
        yield from ((f"logs.{name}", template) for name, template in command.logs.items())
    if command.file_paths:
        yield from ((f"{FILE}{name}", template) for name, template in command.file_paths.items())
    if command.action and command.action.paths:
        yield from ((name, command.action.bindings[binding]) for name, binding in command.action.paths.items())


def _hide_credentials(value: Any) -> Any:
    """A binding of an agent with credentials hidden. Secrets that the workflow passes by name are kept."""
    if isinstance(value, dict) and value.keys() == {"${}"}:
        return {"${}": [hide_in(part) if isinstance(part, str) else part for part in value["${}"]]}
    return hide_in(value)


def reads_secrets(template: Template | Expression) -> bool:
    """Whether it reads a secret, so that only a worker can evaluate it."""
    return _includes_secrets(template.reads)


def _includes_secrets(reads: Iterable[str]) -> bool:
    return any(name.startswith("secrets.") for name in reads)


# A plain path: evaluating it fetches the artifact that it leads to.
_OUTPUT = Expression("output", ("output",))


def fetch_artifact(evaluator: Evaluator, value: Any) -> Any:
    """A value of a fact; the content of the artifact if it is a reference. ExpressionFailed if there is none."""
    if (dropped := find_dropped(value) if is_artifact(value) else None) is not None:
        raise OutputDropped(describe_dropped(dropped))
    return evaluator.evaluate(_OUTPUT, {"output": value}) if is_artifact(value) else value


def fill_params(action: Action, bindings: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the action with their holes filled."""
    result: dict[str, Any] = fill(action.params, bindings)
    return result


def approval_of(place: Place) -> dict[str, Any]:
    """What a person is asked, and until when; empty if its values are gone: the attempt has ended within this turn."""
    action = place.spec.action
    is_known = action is not None and action.bindings.keys() <= place.bindings.keys()
    return fill_params(action, place.bindings) if action is not None and is_known else {}


def fill(value: Any, bindings: Mapping[str, Any]) -> Any:
    """A JSON value with its holes filled from `bindings`. Filled-in values are not searched for holes."""
    if isinstance(value, dict):
        if len(value) == 1 and "${}" in value:
            return bindings[value["${}"]]
        return {key: fill(inner, bindings) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, bindings) for inner in value]
    return value


def holes(params: Any) -> frozenset[str]:
    """The names of the bindings used in the holes of an action's parameters."""
    if isinstance(params, dict):
        if len(params) == 1 and "${}" in params:
            return frozenset({params["${}"]})
        return frozenset().union(*map(holes, params.values()))
    return frozenset().union(*map(holes, params)) if isinstance(params, list) else frozenset()


def names(state: State, place: Place, reads: Iterable[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The names in `reads`, with their values for an expression at `place`."""
    found: dict[str, Any] = {}
    for read in reads:
        root, _, rest = read.partition(".")
        if root in extra:
            found[root] = extra[root]
        elif root == "steps":
            steps = found.setdefault("steps", {})
            for name in state.graph.nodes if rest == "*" else (rest,):
                members = state.graph.matrices.get(name)
                steps[name] = step_view(state, name, place) if members is None else matrix_view(state, members)
        elif root not in found:
            _add(state, place, root, found)
    return found


def _add(state: State, place: Place, root: str, found: dict[str, Any]) -> None:
    if root == "inputs":
        found[root] = _inputs(state, place)
    elif root == "files":
        found[root] = state.workflow.files
    elif root == "run":
        found[root] = run_view(state, place)
    elif root == "error":
        found[root] = error_view(nearest_failure(state, place))
    elif root == "failure":
        found[root] = failure_view(state, place)
    elif root == "output":
        found[root] = nearest_output(state, place)
    elif root == "outputs":
        found[root] = _item_outputs(state, place)
    else:
        _add_item(state, place, root, found)
        # Last, since in an older workflow an item may have this name.
        if root not in found and root in _ATTEMPT_NAMES:
            found[root] = _ATTEMPT_NAMES[root](state, place)


def _inputs(state: State, place: Place) -> dict[str, Any]:
    """`inputs`: those of the run; in a tool, and in what belongs to it, also the arguments of the call.

    In a step that a program has called: its arguments alone.
    """
    call = next((above.call for above in state.ancestors(place) if above.call is not None), None)
    if state.calls and (of_program := state.calls.get(state.step_of(place).key)) is not None:
        return of_program.arguments if call is None else {**of_program.arguments, **call.arguments}
    return state.run.inputs if call is None else {**state.run.inputs, **call.arguments}


def _call_view(state: State, place: Place) -> dict[str, Any]:
    """`call`: the tool of a server that an agent calls, and its arguments. Only the commands of servers read it."""
    call = place.call
    return {} if call is None else {"tool": call.target, "arguments": call.arguments}


def _item_outputs(state: State, place: Place) -> list[Any]:
    """`outputs`: of the commands of an item so far. What opens its worktree counts only for what merges it."""
    item = next((above for above in state.ancestors(place) if above.role == "item"), None)
    if item is None:
        return []
    is_hidden = state.step(item.parent).has_worktrees and not _is_of_workspace(place)
    return list(item.outputs[1:] if is_hidden else item.outputs)


def _is_of_workspace(place: Place) -> bool:
    return traits_of(place.spec.action).opens_worktrees


def _add_item(state: State, place: Place, root: str, found: dict[str, Any]) -> None:
    """Add the item, `index` and `previous` if the place is inside a map. The evaluator provides `env` and `secrets`."""
    for above in state.ancestors(place):
        if above.role == "item":
            step = state.step(above.parent)
            items = state.places[above.parent].items
            if root == "index":
                found[root] = above.index
            elif step.map and root == step.map.name and items:
                found[root] = items.values[above.index]
            elif root == "previous":
                found[root] = previous_output(state, above)
            return


def previous_output(state: State, item: Place) -> Any:
    """`previous`: the output of the nearest item before this one that completed; null if there is none."""
    for index in range(item.index - 1, -1, -1):
        before = state.places.get(item_key(item.parent, index))
        if before is not None and before.status == "completed":
            return before.output
    return None


def attempt_number(state: State, place: Place) -> int:
    """`attempt`: the number of the attempt being scheduled; in a recovery script, of the attempt that failed."""
    return state.places[place.parent].attempt if place.role == "script" else next_attempt(state, place)


def own_step_view(state: State, place: Place) -> dict[str, Any]:
    """`step`: name and number of the step. Steps are numbered from 1 in file order; `end` is the last."""
    name = state.step_of(place).key
    nodes = state.graph.nodes
    return {"name": name, "number": (nodes[name].order if name in nodes else len(nodes)) + 1}


_ATTEMPT_NAMES: dict[str, Callable[[State, Place], Any]] = {
    "attempt": attempt_number,
    "step": own_step_view,
    "call": _call_view,
}


def next_attempt(state: State, place: Place) -> int:
    """The number of the next attempt. Attempts of an item's commands are numbered over the item.

    A command that a reader added begins with the number of the item and counts on for itself.
    """
    is_numbered_over_item = place.role == "do" and not is_added(place.spec)
    return (state.places[place.parent] if is_numbered_over_item else place).attempt + 1


# -- views ------------------------------------------------------------------------------


def step_view(state: State, name: str, reader: Place | None = None) -> dict[str, Any]:
    """A step as expressions see it: `steps.NAME.output` and the rest.

    A step in a loop that reads itself before it has an output reads that of its last visit.
    """
    place = state.places[name]
    is_itself = reader is not None and state.step_of(reader) is place
    record = None if place.failure_index is None else state.failures[place.failure_index]
    return {
        "output": place.before if is_itself and place.output is None else place.output,
        "status": place.status,
        "failure": error_view(place.failure) if place.failure else None,
        "visits": place.visit,
        "attempts": place.attempt,
        "recovered": bool(place.recovered_by),
        "handled": record is not None and is_handled(state, record) is True,
        "warnings": [error_view(warning) for warning in place.warnings],
    }


def matrix_view(state: State, members: Iterable[str]) -> dict[str, Any]:
    """A matrix as expressions see it: lists in the order of its combinations, and `failed` with the failed ones.

    A step without output is null in `output`, so that an index means the same combination in each list.
    """
    places = [state.places[name] for name in members]
    return {
        "output": [place.output for place in places],
        "matrix": [state.step(place.key).matrix for place in places],
        "failed": [_failed_combination(state, place) for place in places if place.status == "failed"],
    }


def _failed_combination(state: State, place: Place) -> dict[str, Any]:
    view = step_view(state, place.key)
    error = view["failure"] or error_view(None)
    found = {key: error[key] for key in ("code", "message", "exit_code", "signal")}
    values = state.step(place.key).matrix
    return {"step": place.key, "matrix": values, **found, "attempts": view["attempts"], "handled": view["handled"]}


def run_view(state: State, place: Place) -> dict[str, Any]:
    """`run`: with all steps and failures for `end`, without them for other places."""
    view: dict[str, Any] = {"id": state.run.run_id, "workflow": state.workflow.name, "round": state.run.round}
    view["data"] = {name: one.value for name, one in state.run.data.items()}
    view["workspace"] = workspace_view(state)
    if state.step_of(place).key == END:
        view["steps"] = {name: step_view(state, name) for name in state.graph.nodes}
        view["failures"] = failure_views(state, failed_visits(state))
        view["stopping"] = state.run.stop.cause if state.run.stop else None
    return view


def failed_visits(state: State) -> list[FailureRecord]:
    """The visits that failed or were recovered by a handler, in order, without those that a later round runs again."""
    records = sorted((*state.failures, *state.recoveries), key=lambda record: record.seq)
    return [record for record in records if not record.is_closed]


def failure_views(state: State, records: Iterable[FailureRecord]) -> list[dict[str, Any]]:
    """Failed visits as `end` sees them."""
    return [
        {
            **error_view(record.failure),
            "step": record.step,
            "visit": record.visit,
            "handled": not record.recovered_by and is_handled(state, record) is True,
            "recovered": bool(record.recovered_by),
            "allowed": record.is_allowed,
        }
        for record in records
    ]


# Without the beginning of a long stderr, which only the failure context shows.
_ERROR_FIELDS = tuple(name for name in Failure.__struct_fields__ if name not in ("head", "left_out"))


def error_view(failure: Failure | None) -> dict[str, Any]:
    """A failure as expressions see it: `error.message`, `error.exit_code`, `error.timestamp` and the rest.

    Without a failure every field is null, so that a step that no failure edge led to can read them too.
    """
    if failure is None:
        return {**dict.fromkeys(_ERROR_FIELDS), "timestamp": None}
    view: dict[str, Any] = {name: getattr(failure, name) for name in _ERROR_FIELDS}
    view["at"] = view["timestamp"] = None if failure.at is None else failure.at.isoformat().replace("+00:00", "Z")
    view["cause"] = [error_view(cause) for cause in failure.cause]
    view["exceptions"], view["traceback"] = list(failure.exceptions), list(failure.traceback)
    view["handler_failure"] = None if failure.handler_failure is None else error_view(failure.handler_failure)
    return view


def nearest_failure(state: State, place: Place) -> Failure | None:
    """The failure that a handler or script deals with: of the nearest parent that has one, or of the place itself."""
    for above in state.ancestors(place):
        found = None if above is place else _failure_or_cancellation(state, above)
        if found is not None:
            return found
    return place.failure


def _failure_or_cancellation(state: State, place: Place) -> Failure | None:
    """The failure of a place; CANCELLED if it was stopped, since then its cleanup handler runs for that."""
    if place.phase != "stopped":
        return place.failure
    step, stop = state.step_of(place), state.run.stop
    message = _STOP_MESSAGES[stop.cause] if stop else "it was stopped"
    return failure("CANCELLED", message, step=step.key, visit=step.visit, attempt=place.attempt, at=state.run.at)


RUN_TOO_LONG = "the run took longer than its timeout"
_STOP_MESSAGES: dict[StopCause, str] = {
    "cancelled": "the run was cancelled",
    "timed_out": RUN_TOO_LONG,
    "failed_fast": "the run stopped because another step failed",
}


def nearest_output(state: State, place: Place) -> Any:
    """`output`: of the place that a validator checks, of the visit that is undone, or of an item's previous command."""
    for above in state.ancestors(place):
        if above.role == "undo":
            return state.undoables[state.visit_being_undone].output
    parent = state.places.get(place.parent)
    if place.role == "do" and place.index == 1 and state.step(state.step_of(place).key).has_worktrees:
        # The first command of the file: the one before it opened the worktree.
        return None
    return parent.output if parent is not None and place.role in ("validator", "success", "do") else place.output


def failure_view(state: State, place: Place) -> dict[str, Any]:
    """`failure`, for a step reached by a failure edge: the fields of the newest failure, and the failure context."""
    step = state.step_of(place)
    sources = failed_sources(state, step)
    view = error_view(sources[-1].failure if sources else None)
    view["context"] = failure_context(state.run.run_id, step.key, sources, state.workflow.hide_credentials)
    return view


def failed_sources(state: State, step: Place) -> list[FailedSource]:
    """The failures that led to the current visit of the step, in order."""
    failures = (state.failures[index] for index in state.informed.get((step.key, step.visit), ()))
    # Without failures of earlier rounds whose step runs again in this one.
    return [_source(record) for record in failures if not record.is_closed]


def _source(record: FailureRecord) -> FailedSource:
    return FailedSource(
        step=record.step,
        visit=record.visit,
        attempt=record.attempt,
        max_retries=record.max_retries,
        retries_used=record.retries_used,
        reason=record.reason,
        failure=record.failure,
        entered_seq=record.entered_seq,
        failure_seq=record.seq,
        failed_at=record.at,
        summary=record.summary,
    )
