"""Random edits of a program between two rounds, and which of its calls the edited one keeps."""

from __future__ import annotations

from random import Random

from mulligan.core.deciding.rounds.program_rounds import calls_to_repeat
from mulligan.core.effects.program_history import clock_begin, history_without
from mulligan.core.evolve.revision import plain_from_json
from mulligan.core.model.reports import Revised
from mulligan.core.model.workflow import Workflow, encode, version
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.programs import messages as m
from mulligan.programs.conversion import history_of
from mulligan.programs.correction import corrected
from proof.simulator.programs.drawing import edited, program_of
from proof.simulator.programs.interpreting import function_of


def edited_program(dice: Random, state: State, from_step: str, *, is_forced: bool) -> Revised:
    """The program of a run, edited, as a person sends it with a retry."""
    workflow = edited(state.workflow, dice.randrange(2**32))
    data = encode(workflow)
    ended = state.run.round if state.run.status in RUN_ENDED else 0
    kept = _kept_calls(state, workflow, from_step, is_forced=is_forced)
    return Revised(version(data), plain_from_json(data), dict(state.run.inputs), kept_calls=kept, kept_round=ended)


def _kept_calls(state: State, workflow: Workflow, from_step: str, *, is_forced: bool) -> tuple[str, ...]:
    """As the service finds them, without another process."""
    history = history_without(state, calls_to_repeat(state, from_step, is_forced=is_forced))
    action = workflow.steps[0].action
    assert action is not None
    function = function_of(program_of(action.params))
    entered = clock_begin(state.places[state.graph.program])
    found = corrected(function, {}, m.decode_history(history_of(history)), at=entered)
    return tuple(state.labels[one.branch, one.ordinal] for one in found.kept)
