"""The failure handler of a step alone, for its author: it runs as if the step had just failed.

The action of the step is replaced by an approval, and its answer is the given failure. Everything after that is what
the engine does after any failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec

from mulligan.core.model.actions import APPROVE
from mulligan.core.model.event_types import Kept
from mulligan.core.model.failure import Failure, bounded_exceptions, failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Action, Command, Expression, Handler, Input, Map, Step, Workflow
from mulligan.core.state.state import Place
from mulligan.errors import InputInvalid, NotFound, Refused
from mulligan.history.phrases import describe_failure
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.authoring.step_trial import ALONE, BARE, find_step, with_stand_ins
from mulligan.service.driving.driver import Ending, machine
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.prepared_runs import Prepared
from mulligan.service.runs.stored.artifacts import with_artifact_paths
from mulligan.service.runs.stored.run_reader import AttemptLog, RunReader

Failing = TypeVar("Failing", bound=Command)

# The failing place keeps its handler, its capture format and the files that it must write.
_FAILING: dict[str, Any] = {
    **{name: value for name, value in BARE.items() if name != "on_failure"},
    "action": Action(APPROVE, {"message": "how it failed"}),
    **{"timeout": None, "deadline": None, "validate": None, "validator": None},
    **{"env": {}, "cwd": None, "resources": None, "reads": ()},
}
# The input that holds the item of a trial; no workflow has an input of this name.
_ITEMS = "_items_of_the_trial"


class NoHandler(NotFound):
    """The step, or this command of it, has no `on_failure`."""

    code = "handler.none"


class HandlerTrial(msgspec.Struct, frozen=True):
    """A workflow in which one place fails at once, the key of that place, and its original handler."""

    workflow: Workflow
    step: str
    place: str
    handler: Handler

    @property
    def owner(self) -> str:
        """What completes or fails in the end: the step, or the item."""
        return self.place.rpartition(".")[0] or self.place


class HandlerResult(msgspec.Struct, frozen=True):
    """The result of a trial. `outcome`: what the step would have become."""

    run_id: int
    step: str
    strategy: str
    ending: Ending
    outcome: Literal["completed", "rerun", "failed", "open"]
    recovered_by: str
    output: Any
    failure: Failure | None
    # What its commands wrote, in order: every attempt of each, including handlers of handlers.
    logs: list[AttemptLog]

    @property
    def exit_code(self) -> int:
        if self.outcome == "open":
            return 130 if self.ending == "interrupted" else 4
        return int(self.outcome == "failed")


# -- isolating it ----------------------------------------------------------------------------------------------------


def isolate_handler(workflow: Workflow, name: str) -> HandlerTrial:
    """The handler of the step itself."""
    wanted = find_step(workflow, name)
    if wanted.on_failure is None:
        numbers = [number for number, command in enumerate(wanted.do, start=1) if command.on_failure]
        hint = f"its command {numbers[0]} has one: try it for an item with --item JSON" if numbers else ""
        raise NoHandler(f"step '{name}' has no handler", hint=hint, step=name)
    failing = _failing(wanted, wanted.on_failure)
    alone = msgspec.structs.replace(failing, **ALONE, map=None, do=())
    return HandlerTrial(with_stand_ins(workflow, alone), name, name, wanted.on_failure)


def isolate_item_handler(workflow: Workflow, name: str, item: Any, number: int | None = None) -> HandlerTrial:
    """The handler of a command of a map step for one item: of the command `number`, or of the first with a handler."""
    wanted = find_step(workflow, name)
    if wanted.map is None:
        raise Refused(f"step '{name}' is not a map: it has no items", step=name)
    command, handler = _handled(wanted, number)
    items = Map(over=Expression(f"inputs.{_ITEMS}", ("inputs",)), name=wanted.map.name)
    alone = msgspec.structs.replace(
        wanted, **{**BARE, **ALONE, "reads": (), "writes": ()}, map=items, do=(_failing(command, handler),)
    )
    inputs = {**workflow.inputs, _ITEMS: Input("array", [item], has_default=True)}
    trial = msgspec.structs.replace(with_stand_ins(workflow, alone), inputs=inputs)
    return HandlerTrial(trial, name, f"{name}[0].0", handler)


def _handled(step: Step, number: int | None) -> tuple[Command, Handler]:
    commands = list(enumerate(step.do, start=1))
    if number is not None and not 1 <= number <= len(commands):
        raise NoHandler(f"step '{step.name}' has no command {number}", hint=f"it has {len(commands)}", step=step.name)
    for index, command in commands:
        if command.on_failure is not None and number in (None, index):
            return command, command.on_failure
    if number is None:
        raise NoHandler(f"no command of step '{step.name}' has a handler", step=step.name)
    raise NoHandler(f"command {number} of step '{step.name}' has no handler", step=step.name)


def _failing(command: Failing, handler: Handler) -> Failing:
    """The command without its action and without any reaction to a failure except its handler, which runs once."""
    once = msgspec.structs.replace(handler, rerun=0)
    # With a rerun the step writes the files later, so they need not exist yet.
    files = () if handler.rerun else command.writes
    return msgspec.structs.replace(command, **_FAILING, on_failure=once, writes=files)


# -- the failure -----------------------------------------------------------------------------------------------------


class _Error(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a failure that may be given."""

    code: str = ""
    message: str = ""
    severity: Literal["error", "critical"] | None = None
    retryable: bool | None = None
    exit_code: int | None = None
    signal: int | None = None
    details: dict[str, Any] = {}
    trace: str = ""
    cause: list[_Error] = []
    exceptions: list[str] = []


# Ignored, so that a failure can be pasted as `show --json` prints it.
_FILLED_IN = frozenset({"step", "item", "visit", "attempt", "at", "timestamp", "handler_failure"})


def parse_failure(text: str) -> Failure:
    """The failure that JSON describes. The default of each field is that of exit code 1."""
    try:
        said = msgspec.json.decode(text)
        if not isinstance(said, dict):
            raise InputInvalid("the error is not a JSON object", hint=_EXAMPLE)
        return _failure(msgspec.convert(_cleaned(said), _Error))
    except msgspec.ValidationError as error:
        sentence = str(error)
        raise InputInvalid(f"the error does not fit: {sentence[:1].lower()}{sentence[1:]}", hint=_EXAMPLE) from None
    except RecursionError:
        raise InputInvalid("the error is not readable JSON: it is nested too deep", hint=_EXAMPLE) from None
    except UnicodeError:
        raise InputInvalid("the error is not JSON: it is not UTF-8", hint=_EXAMPLE) from None
    except msgspec.DecodeError as error:
        raise InputInvalid(f"the error is not JSON: {error}", hint=_EXAMPLE) from None


_EXAMPLE = """write it like '{"code": "TIMEOUT", "message": "took too long"}'"""


def _cleaned(said: dict[str, Any]) -> dict[str, Any]:
    """Without ignored fields and nulls. Raises if it has an unknown field."""
    known = _Error.__struct_fields__
    for name in said:
        if name not in known and name not in _FILLED_IN:
            raise InputInvalid(
                f"an error has no '{name}'", hint=did_you_mean(name, known) or f"it has {', '.join(known)}"
            )
    found = {name: value for name, value in said.items() if name in known and value is not None}
    if isinstance(found.get("cause"), list):
        found["cause"] = [_cleaned(cause) if isinstance(cause, dict) else cause for cause in found["cause"]]
    return found


def _failure(said: _Error) -> Failure:
    code = said.code or ("EXIT_NONZERO" if said.signal is None else "SIGNALED")
    exit_code = 128 + said.signal if said.signal is not None else said.exit_code
    if code == "EXIT_NONZERO" and exit_code is None:
        exit_code = 1
    if code == "EXIT_NONZERO" and not exit_code:
        raise InputInvalid("exit code 0 is not a failure", hint=_EXAMPLE)
    fields = {"severity": said.severity, "retryable": said.retryable}
    return failure(
        code,
        said.message or _in_words(code, exit_code, said.signal),
        exit_code=exit_code,
        signal=said.signal,
        details=said.details,
        trace=said.trace,
        cause=tuple(map(_failure, said.cause)),
        exceptions=bounded_exceptions(said.exceptions),
        **{name: value for name, value in fields.items() if value is not None},
    )


def _in_words(code: str, exit_code: int | None, signal: int | None) -> str:
    if code == "SIGNALED" and signal is not None:
        return f"killed by signal {signal}"
    return f"exit code {exit_code}" if code == "EXIT_NONZERO" else code


# -- running it ------------------------------------------------------------------------------------------------------


def run_handler(
    changes: Changes, trial: HandlerTrial, prepared: Prepared, error: Failure, kept: Sequence[Kept] = ()
) -> HandlerResult:
    """Let the place fail, and drive the run until its handler has ended."""
    [run_id] = changes.create(prepared, kept=kept)
    # In the inbox after the request, so that the place fails as soon as the run has begun.
    changes.reader.store.put(run_id, TaskEnded(datetime.now(UTC), trial.place, 1, Outcome(said=error)))
    with open_driver(changes.reader, machine()) as driver:
        ending = driver.drive(run_id)
    return _tried(changes.reader, trial, run_id, ending)


def _tried(reader: RunReader, trial: HandlerTrial, run_id: int, ending: Ending) -> HandlerResult:
    owner = reader.state(run_id).places[trial.owner]
    own = {trial.step, trial.owner, trial.place}
    logs = [reader.attempt_log(run_id, *one) for one in reader.attempts(run_id, trial.step) if one[0] not in own]
    output = with_artifact_paths(reader.store.artifacts, owner.output)
    return HandlerResult(
        run_id=run_id,
        step=trial.step,
        strategy=trial.handler.strategy,
        ending=ending,
        outcome=_outcome(trial, owner),
        recovered_by=owner.recovered_by,
        output=output,
        failure=owner.failure,
        logs=logs,
    )


def _outcome(trial: HandlerTrial, owner: Place) -> Literal["completed", "rerun", "failed", "open"]:
    if owner.status == "completed":
        return "rerun" if trial.handler.rerun else "completed"
    return "failed" if owner.status == "failed" else "open"


def describe_result(trial: HandlerTrial, tried: HandlerResult) -> str:
    """What the step would have become, in a sentence."""
    what_ = f"step '{trial.step}'" if trial.owner == trial.step else f"the item of step '{trial.step}'"
    if tried.outcome == "completed":
        by = f"recovered by its {tried.recovered_by} handler"
        return f"{what_} would be completed, {by}, with output {_json(tried.output)}"
    if tried.outcome == "rerun":
        return f"{what_} would run again: its handler succeeded"
    if tried.outcome == "open":
        return f"the handler of {what_} has not ended"
    return f"the failure of {what_} would go to the next rung: {_why_unhandled(trial, tried)}"


def _why_unhandled(trial: HandlerTrial, tried: HandlerResult) -> str:
    found = tried.failure.handler_failure if tried.failure else None
    if found is not None:
        return f"its handler also failed with {describe_failure(found.cause[0] if found.cause else found)}"
    if trial.handler.strategy == "cleanup":
        return "a cleanup handler does not change the outcome"
    return "its handler says so"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
