"""Deliberate defects in programs: in what the core makes of their calls, and in the machine below them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mulligan.core import ordinary
from mulligan.core.deciding import admit, flow, programs
from mulligan.core.deciding.rounds import program_rounds, rounds
from mulligan.core.effects import program_history, tasks
from mulligan.core.evolve import evolve_programs
from mulligan.core.model import events as e
from mulligan.core.state.state import State
from mulligan.programs import conversion
from mulligan.programs.correction import _CorrectingMachine
from mulligan.programs.machine import Machine

from .sabotage import DEFECTS, defect

_BEFORE = set(DEFECTS)


@defect(conversion, "_recorded_calls")
def _(real: Any) -> Any:
    """a replay does not know the last call, and makes it again"""
    return lambda history: list(real(history))[:-1]


@defect(admit, "end_turn")
def _(real: Any) -> Any:
    """a call of a program is added twice"""

    def end_turn(*about: Any) -> Any:
        for fact in real(*about):
            yield fact
            if isinstance(fact, e.StepAdded):
                yield replace(fact, step=f"{fact.step}-again")

    return end_turn


@defect(ordinary, "added_call")
def _(real: Any) -> Any:
    """an inline step that is recorded at once is told to its program again"""
    return lambda now, place, call, **more: real(now, place, call)


@defect(ordinary, "program_turn")
def _(real: Any) -> Any:
    """the next task of a program is the last one, with what that was told"""
    return lambda state, place: replace(real(state, place), deliveries=())


@defect(programs, "resume_program")
def _(real: Any) -> Any:
    """a program is told of the last end of a call first"""

    def resume_program(*about: Any, **more: Any) -> Any:
        for fact in real(*about, **more):
            yield replace(fact, ended=fact.ended[::-1]) if isinstance(fact, e.ProgramResumed) else fact

    return resume_program


@defect(tasks, "program_turn")
def _(real: Any) -> Any:
    """a process that lives is told in another order than a replay"""

    def program_turn(*about: Any) -> Any:
        turn = real(*about)
        return replace(turn, deliveries=turn.deliveries[::-1])

    return program_turn


@defect(program_history, "_failure")
def _(real: Any) -> Any:
    """a replay is told that what has failed was cancelled"""

    def failure(place: Any) -> Any:
        found = real(place)
        return None if found is None else replace(found, code="CANCELLED")

    return failure


@defect(State, "add_call")
def _(real: Any) -> Any:
    """a call outlives a turn that was rolled back"""

    def add_call(self: State, label: str, call: Any) -> None:
        self.labels[call.branch, call.ordinal] = label
        real(self, label, call)

    return add_call


@defect(State, "restore_calls")
def _(real: Any) -> Any:
    """a run that is loaded has forgotten its last call"""

    def restore_calls(self: State, calls: dict[str, Any]) -> None:
        real(self, dict(list(calls.items())[:-1]) if len(calls) > 1 else calls)

    return restore_calls


@defect(evolve_programs, "calls_to_undo")
def _(real: Any) -> Any:
    """what a round of a program drops is not undone"""
    return lambda *about: ()


@defect(rounds, "dropped_calls")
def _(real: Any) -> Any:
    """a retry keeps what a program did since it knew the end of a call that is made again"""

    def dropped_calls(state: Any, from_step: str, **more: Any) -> Any:
        roots = program_rounds.calls_to_repeat(state, from_step, is_forced=more.get("is_forced", False))
        return tuple(label for label in state.calls if label in roots)

    return dropped_calls


@defect(flow, "cancel_open_calls")
def _(real: Any) -> Any:
    """the open calls of a program that has failed go on"""
    return lambda now: iter(())


@defect(State, "has_open_calls")
def _(real: Any) -> Any:
    """a program ends before its open calls have"""
    return property(lambda self: False)


@defect(flow, "after_call")
def _(real: Any) -> Any:
    """a program that waits is not told that a call has ended"""
    return lambda *about: iter(())


@defect(flow, "_active_programs")
def _(real: Any) -> Any:
    """a program that waits takes a slot of its run"""
    return lambda state: 0


@defect(_CorrectingMachine, "_keep")
def _(real: Any) -> Any:
    """an edited program keeps a call that it makes in another way"""

    def keep(self: Any, recorded: Any, *asked: Any) -> bool:
        self.kept.append(recorded.id)
        return True

    return keep


@defect(Machine, "_run_inline")
def _(real: Any) -> Any:
    """an inline step that has ended runs again in a replay"""

    def run_inline(self: Machine, call: Any, *, is_new: bool) -> None:
        real(self, call, is_new=True)

    return run_inline


SENTENCES = tuple(sentence for sentence in DEFECTS if sentence not in _BEFORE)
