"""A run of a program, whose turns the test takes, and the rows of a run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self

from mulligan.core.effects.snapshot import Row, changes
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import reports as r
from mulligan.core.model.actions import PROGRAM
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.program_calls import ProgramCall, TurnEnd
from mulligan.core.model.workflow import Action, Template
from mulligan.core.state.state import STATE_TABLES, State
from mulligan.core.turn import fold
from mulligan.testing.history import History, expression, step, workflow

INPUTS = Template((expression("inputs", "inputs"),))
LOAD = step("load", action=Action("python", {"call": "m:load", "args": {"${}": "args"}}, {"args": INPUTS}))

# When a fork is made, after the run that it is of.
LATER = timedelta(days=2)


class Program(History):
    """A run of a program, whose turns the test takes."""

    def __init__(self, **fields: Any) -> None:
        program = step("nightly", action=Action(PROGRAM, {"call": "m:nightly"}), **fields.pop("keys", {}))
        self.definition = workflow(program, **fields)
        super().__init__(self.definition, {"inputs": lambda names: names["inputs"]})
        self.made = 0
        self.start()

    def forked(self, seq: int = 0, **fields: Any) -> Self:
        """A run that goes on from an event of this one, by default from the last, two days later."""
        seq = seq or len(self.log)
        fork = type(self).__new__(type(self))
        History.__init__(fork, self.definition, evaluator=self.evaluator)
        fork.made, fork.clock, fork.definition = self.made, self.clock + LATER, self.definition
        history = pack_history(self.log[:seq])
        given = {"run_id": 2, "history": history, "forked_from": 1, "forked_at": seq, "by": "ann", "uid": "new"}
        fork.report(r.RunRequested(fork.clock, **given | fields))
        assert fold(self.definition, fork.log) == fork.state
        return fork

    @property
    def turn(self) -> int:
        progress = self["nightly"].program
        return 1 if progress is None else progress.turn

    def say(self, *calls: ProgramCall, output: Any = None, **said: Any) -> Program:
        """Begin the turn of the program, and end it with what it says."""
        usage = said.pop("usage", {})
        turn = self._turn(calls, said)
        self.report(r.TaskEnded(self.clock, "nightly", self["nightly"].attempt, output=output, turn=turn, usage=usage))
        return self

    def go_on(self, *calls: ProgramCall, **said: Any) -> Program:
        """Begin the turn of the program, and say in the middle of it what it has called."""
        turn = self._turn(calls, {"goes_on": True, **said})
        self.report(r.CallsMade(self.clock, "nightly", self["nightly"].attempt, turn))
        return self

    def _turn(self, calls: tuple[ProgramCall, ...], said: dict[str, Any]) -> TurnEnd:
        if self["nightly"].status == "ready":
            self.report(r.TaskStarted(self.clock, "nightly", self["nightly"].attempt, "w1", "h1", self.turn))
        definitions = said.pop("definitions", None) or {"d": said.pop("definition", LOAD)}
        return TurnEnd(self.turn, definitions, calls, **said)

    def load(self, x: int = 0, **fields: Any) -> ProgramCall:
        self.made += 1
        given = {"definition": "d", "arguments": {"x": x}, "digest": str(x), **fields}
        return ProgramCall(given.pop("branch", ""), self.made - 1, "load", **given)

    def told(self) -> list[tuple[str, Any, str]]:
        """What the next turn is told: labels with outputs or codes of failures."""
        turn = make_task(self.state, "nightly").turn
        assert turn is not None
        return [(one.label, one.output, one.failure.code if one.failure else "") for one in turn.deliveries]


def every_row(state: State) -> list[Row]:
    """All rows of a run."""
    whole = state.copy()
    whole.begin()
    for name in STATE_TABLES[1:]:
        table = getattr(whole, name)
        for key in range(len(table)) if isinstance(table, list) else list(table):
            whole.touch(key) if name == "places" else whole._journal.append((table, key, None))  # type: ignore[union-attr]
    return changes(whole)
