"""Makes failures happen in a play: which attempts fail, how often, and in which way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.analysis.coverage.failure_kinds import Kind, failing_command
from mulligan.analysis.playing.assumed_values import ITEMS, assumed_input
from mulligan.analysis.playing.outcomes import Assumed, AssumedChild, Decision
from mulligan.analysis.playing.player import SECONDS_MAX, PlayedRun, Player
from mulligan.core.effects.effects import QueueTask
from mulligan.core.evolve.evolve_places import holds_conversation
from mulligan.core.model import reports as r
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.program_calls import TurnEnd
from mulligan.core.model.workflow import AgentTools, Step, Workflow
from mulligan.core.state.program_progress import NO_PROGRESS
from mulligan.core.state.state import Place, State

ALWAYS = 1_000_000_000
WELL = Assumed()
# The places that call a run, from the root on; () for the root itself.
Path = tuple[str, ...]


class Injection(msgspec.Struct, frozen=True):
    """A failure that happens to a step of one run of the tree, this many times."""

    path: Path
    step: Step
    kind: Kind
    times: int = ALWAYS


class Stop(msgspec.Struct, frozen=True):
    """When a step is running, or has completed: the run is cancelled, or all that runs is killed with its worker."""

    path: Path
    step: str
    when: Literal["running", "completed"]
    how: Literal["cancel", "kill"] = "cancel"


class Scenario(msgspec.Struct, frozen=True):
    """Everything that goes wrong in one play."""

    injections: tuple[Injection, ...] = ()
    stop: Stop | None = None


class InjectedOutcomes:
    """Every task succeeds at once, except those that the injections make fail. Good for one play."""

    def __init__(self, injections: tuple[Injection, ...]) -> None:
        self._open = [one for injection in injections for one in _opened(injection)]
        # How often the last injection could have happened and how often it did.
        self.asked = 0
        self.injected = 0

    @property
    def was_asked_again(self) -> bool:
        """Whether more failures of the last injection would change anything."""
        return self.asked > self.injected

    @property
    def left(self) -> int:
        """How often the last injection may still happen."""
        return self._open[-1].left if self._open else 0

    def of_task(self, state: State, place: Place, task: QueueTask, at: datetime) -> Assumed:
        return self._injected(state, place) or assumed_task(state, place)

    def _injected(self, state: State, place: Place) -> Assumed | None:
        for one in self._open:
            if one.is_for(state, place):
                return assumed_failure(one.injection.kind, place) if self._count(one) else None
        return None

    def _count(self, one: _Open) -> bool:
        """Whether the injection happens now, once more."""
        happens = one.left > 0
        one.left -= happens
        if one is self._open[-1]:
            self.asked += 1
            self.injected += happens
        return happens

    def of_child(self, state: State, place: Place, child: Workflow, at: datetime) -> AssumedChild | None:
        one = next((one for one in self._open if one.is_for_call(state, place)), None)
        if one is None or not self._count(one):
            return None
        return assumed_child_failure(one.injection.kind)

    def of_event(self, state: State, place: Place, at: datetime) -> Assumed:
        return self._injected(state, place) or assumed_task(state, place)

    def of_person(self, state: State, place: Place, at: datetime) -> Decision | None:
        if place.status == "pending_failed":
            return None
        one = next((one for one in self._open if one.is_for_call(state, place)), None)
        if one is None or not self._count(one):
            return Decision("approve")
        return Decision("refuse") if one.injection.kind.shown.code == "APPROVAL_REFUSED" else None


class _Open:
    """An injection that may still happen."""

    def __init__(self, injection: Injection, first: _Open | None = None) -> None:
        self.injection = injection
        self.left = injection.times
        # The injection that must have happened before.
        self._first = first
        kind, step = injection.kind, injection.step
        self._uid = re.compile("run" + "".join(rf"\.{re.escape(one)}\.\d+" for one in injection.path))
        self._of = kind.of
        self._name = kind.target if kind.of == "remediation" else step.name
        self._key = self._action_key(step)

    def _action_key(self, step: Step) -> str:
        """The place whose task is the action of the step, "" if that has none or depends on its attempt."""
        if self._of != "step" or step.map is None:
            return "" if holds_conversation(step) else step.name
        command = failing_command(step)
        return f"{item_key(step.name, 0)}.{step.do.index(command)}" if command in step.do else ""

    def is_for(self, state: State, place: Place) -> bool:
        """Whether the task of this place fails by this injection."""
        of, role = self._of, place.role
        if of == "step":
            is_it = place.key == self._key if self._key else role == "model" and place.parent == self._name
        elif of == "remediation":
            is_it = role in ("step", "do", "model") and state.step_of(place).key == self._name
        elif of in ("handler", "script"):
            is_it = role == of and state.step_of(place).key == self._name
            is_it = is_it and (of == "handler" or str(place.index) == self.injection.kind.target)
        else:
            is_it = role == of and place.parent == self._name
        return is_it and self._has_begun and self._uid.fullmatch(state.run.uid) is not None

    @property
    def _has_begun(self) -> bool:
        return self._first is None or self._first.left < self._first.injection.times

    def is_for_call(self, state: State, place: Place) -> bool:
        """Whether the child run or the approval of this place ends otherwise by this injection."""
        is_it = self._of in ("step", "remediation") and place.key == self._name
        return is_it and self._has_begun and self._uid.fullmatch(state.run.uid) is not None


def _opened(injection: Injection) -> Iterator[_Open]:
    """The injection, after that of the failure which brings it about."""
    after = injection.kind.after
    first = None if after is None else _Open(Injection(injection.path, injection.step, after))
    if first is not None:
        yield first
    yield _Open(injection, first)


def assumed_task(state: State, place: Place) -> Assumed:
    """How a task ends well. A program is assumed to call nothing."""
    if place.role == "step":
        is_program = traits_of(place.spec.action).is_program
        return Assumed(turn=TurnEnd((place.program or NO_PROGRESS).turn, how="returned")) if is_program else WELL
    output = assumed_output(state, place)
    return WELL if output is None else Assumed(output=output)


def assumed_failure(kind: Kind, place: Place) -> Assumed:
    """How a task ends that fails in this way."""
    code, found = kind.shown.code, kind.found
    if found.exceptions:
        return Assumed(Outcome(exit_code=None, said=found))
    if code == "TIMEOUT":
        # The player ends it at its limit.
        return Assumed(seconds=SECONDS_MAX)
    if code == "WORKER_LOST":
        return Assumed(is_lost=True)
    if code == "OUT_OF_MEMORY":
        return Assumed(Outcome(exit_code=None, signal=9, is_out_of_memory=True))
    if code == "OUTPUT_MISSING" and place.spec.writes:
        return Assumed(Outcome(missing_outputs=place.spec.writes))
    if code == "EXIT_NONZERO" and kind.shown.exit_code is not None:
        speaks = not found.message.startswith("exit code")
        return Assumed(Outcome(exit_code=kind.shown.exit_code, stderr_tail=found.message if speaks else ""))
    return Assumed(Outcome(exit_code=None, said=found))


def assumed_child_failure(kind: Kind) -> AssumedChild:
    """How a child run ends that fails in this way."""
    if kind.shown.code == "TIMEOUT":
        return AssumedChild(seconds=SECONDS_MAX)
    inside = failure("EXIT_NONZERO", "exit code 1", exit_code=1) if kind.shown.code == "CHILD_FAILED" else kind.found
    return AssumedChild("failed", failures=(inside,))


# -- playing ---------------------------------------------------------------------------------------------------------


def run_at(player: Player, path: Path) -> PlayedRun | None:
    """The last run of the tree that was called by way of these places."""
    return next((run for run in reversed(player.runs) if path_of(run) == path), None)


def path_of(run: PlayedRun) -> Path:
    return () if run.parent is None else (*path_of(run.parent), run.place)


def play_scenario(player: Player, stop: Stop | None) -> None:
    """Play to the end, and stop the run when it is time for that."""
    if player.state.run.status == "new":
        player.start()
    while True:
        if stop is not None and is_time_for(player, stop):
            stop_now(player, stop.how)
            stop = None
        if player.is_over or not player.step():
            return


def is_time_for(player: Player, stop: Stop) -> bool:
    run = run_at(player, stop.path)
    place = None if run is None else run.state.places.get(stop.step)
    return place is not None and place.status == stop.when and not player.root.has_ended


def stop_now(player: Player, how: Literal["cancel", "kill"]) -> None:
    """Cancel the run; or kill its worker: everything that runs is lost, and another worker goes on."""
    if how == "cancel":
        player.report(r.CancelRequested(player.now, by="someone"))
    else:
        player.lose_all()
    player.settle()


# -- what goes well ---------------------------------------------------------------------------------------------------


def assumed_output(state: State, place: Place) -> Any:
    """The output of an attempt that succeeds; None, which is nothing known, for most."""
    role = place.role
    if role == "lister":
        return list(ITEMS)
    if role == "model":
        return _answer(state, place)
    if role == "tool_list":
        tools = state.places[place.parent].spec.tools or AgentTools()
        return {"tools": [{"name": name} for name in tools.servers[place.index].allow]}
    if role == "triager":
        return _triage_answer(state, place)
    if role == "handler" and _is_custom(state, place):
        return {"status": "completed", "output": None}
    return None


def _is_custom(state: State, place: Place) -> bool:
    """Whether it is the last command of a custom handler, which decides how its step ends."""
    handler = state.places[place.parent].spec.on_failure
    return handler is not None and handler.strategy == "custom" and place.index == len(handler.commands) - 1


def _triage_answer(state: State, place: Place) -> dict[str, Any]:
    """A triager is sure that another attempt helps, if it may say so. What follows if it fails is a case of its own."""
    policy = state.step(place.parent).triage
    may = policy.agent.may if policy is not None and policy.agent is not None else ()
    verdict = "retry" if "retry" in may else "fail"
    return {"json": {"verdict": verdict, "confidence": 1.0, "reason": "assumed"}}


def _answer(state: State, place: Place) -> dict[str, Any]:
    """The answer of a model: first it asks for every tool once, then it is done."""
    agent = state.places[place.parent]
    tools, talk = agent.spec.tools, agent.conversation
    if tools is None or (talk is not None and any(turn.results for turn in talk.turns)):
        return {"content": "done"}
    calls = [
        {"name": tool.name, "arguments": {name: assumed_input(one) for name, one in tool.inputs.items()}}
        for tool in tools.steps
    ]
    calls += [{"name": f"{server.prefix}{name}", "arguments": {}} for server in tools.servers for name in server.allow]
    limit = len(calls) if tools.max_calls is None else tools.max_calls
    numbered = [{"id": f"call-{number}", **call} for number, call in enumerate(calls[:limit])]
    return {"content": "", "tool_calls": numbered} if numbered else {"content": "done"}
