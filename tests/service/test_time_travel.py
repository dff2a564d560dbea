"""A run at any of its events: folded from its log, also by way of copies, and the same as it was when it was live."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.program_runs import Program

from mulligan.core.effects.snapshot import restore
from mulligan.core.model import reports as r
from mulligan.core.model.codec import decode_log
from mulligan.core.model.events import Entry
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.workflow import (
    Action,
    Backoff,
    Budget,
    Expression,
    Rule,
    Template,
    Triage,
    Workflow,
    decode,
)
from mulligan.core.state.state import State
from mulligan.core.turn import fold
from mulligan.errors import CodecError, InputInvalid, Refused
from mulligan.history.moments import is_at_rest
from mulligan.service.runs.changes.fork_at import EventForks
from mulligan.service.runs.stored import past_states
from mulligan.service.runs.stored.past_states import PastStates
from mulligan.service.runs.views.time_travel import TimeTravel
from mulligan.testing.history import History, edge, step, workflow
from proof.simulator.simulation import Simulation

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("v*/*.log.jsonl"))


class LogReader:
    """Reads one log, as `RunReader` reads those of a store; counts the events that are read."""

    def __init__(self, definition: Workflow, log: list[Entry]) -> None:
        self.definition, self.entries, self.read = definition, log, 0
        self.store = SimpleNamespace(log=self._log, children=lambda run_id: [], artifacts=SimpleNamespace())

    def record(self, run_id: int) -> Any:
        return SimpleNamespace(seq=len(self.entries))

    def first_workflow(self, run_id: int) -> Workflow:
        return self.definition

    def find_place(self, run_id: int, named: str) -> str:
        return named

    def events(self, run_id: int, after: int = 0) -> list[Entry]:
        return self._log(run_id, after)

    def _log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        found = self.entries[after : None if limit is None else after + limit]
        self.read += len(found)
        return found


def travel(definition: Workflow, log: list[Entry]) -> tuple[TimeTravel, PastStates]:
    reader: Any = LogReader(definition, log)
    past = PastStates(reader)
    cache: Any = SimpleNamespace(past=past, timelines=None)
    return TimeTravel(reader, cache), past


@pytest.mark.parametrize("log", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem[:2]}")
def test_every_event_of_a_golden_log_can_be_looked_at(log: Path):
    definition = decode((log.parent / log.name.replace(".log.jsonl", ".workflow.json")).read_bytes())
    entries = [*decode_log(log.read_bytes())]
    found, past = travel(definition, entries)

    for entry in entries:
        moment = found.moment(1, entry.seq)
        assert (moment.seq, moment.event.seq, moment.at) == (entry.seq, entry.seq, entry.at)
        assert (moment.next is None) == (entry.seq == len(entries))
        assert moment.next is None or moment.next.first == entry.seq + 1
        assert moment.run.status == past.at(1, entry.seq).state.run.status
        assert [one.due for one in moment.timers] == sorted(one.due for one in moment.timers)

    assert past.at(1, len(entries)).state == fold(definition, entries)


@pytest.mark.parametrize("seed", range(4))
def test_the_state_at_an_event_is_what_the_tables_of_the_live_run_had_then(seed: int):
    class Watched(Simulation):
        def check(self) -> None:
            super().check()
            if self.cluster.events:
                loaded = self.cluster.operator.load(1)
                seen[loaded.record.seq] = restore(self.workflow, loaded.rows)

    seen: dict[int, State] = {}
    history = Watched(f"travel {seed}", forks=False).run()
    past = travel(history.workflow, history.log)[1]

    for seq, state in sorted(seen.items(), reverse=True):
        assert not seq or past.at(1, seq).state == state


FLOW = workflow(
    step("fetch", rules=(Rule(exit_codes=(11,), max_retries=2, backoff=Backoff(delay=30.0)),)),
    step("deploy", needs=["fetch"], next=[edge("page", "failure")]),
    step("page"),
)


def flaky() -> History:
    return History(FLOW).start().started("fetch").fail("fetch", 11)


def test_the_points_of_a_log_are_read_from_the_nearest_copy_and_not_from_the_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(past_states, "INTERVAL", 10)
    monkeypatch.setattr(past_states, "TURN_MAX", 5)
    log = [*decode_log(GOLDEN[0].read_bytes())]
    definition = decode((GOLDEN[0].parent / GOLDEN[0].name.replace(".log.jsonl", ".workflow.json")).read_bytes())
    reader: Any = LogReader(definition, log)
    past = PastStates(reader)
    past.at(1, len(log))

    for seq in range(len(log) - 1, 0, -1):
        reader.read = 0
        assert past.at(1, seq).state == fold(definition, log[:seq])
        assert reader.read < 20


def test_a_cancelled_approval_can_be_looked_at_when_its_values_are_gone():
    asks = Action("approve", {"message": {"${}": "b0"}}, {"b0": Template((Expression("inputs.text", ("inputs",)),))})
    history = History(workflow(step("ask", action=asks)), {"inputs.text": "go on?"}).start().cancel()
    found, _ = travel(history.state.workflow, history.log)

    moments = [found.moment(1, entry.seq) for entry in history.log]

    waits = [[wait.text for wait in moment.run.waiting_for] for moment in moments]
    assert ["an approval: go on?"] in waits
    assert ["an approval"] in waits


def test_a_log_that_is_removed_while_it_is_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(past_states, "TURN_MAX", 2)
    reader: Any = LogReader(FLOW, flaky().log)
    past, whole = PastStates(reader), reader.store.log
    # The turn is read, and then nothing more.
    pages = iter([whole(1, len(reader.entries) - 2)])
    reader.store.log = lambda run_id, after=0, limit=None: next(pages, [])

    with pytest.raises(CodecError):
        past.at(1, len(reader.entries))


def test_copies_are_given_up_where_they_have_too_many_places(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(past_states, "INTERVAL", 1)
    monkeypatch.setattr(past_states, "PLACES_MAX", 40)
    history = flaky().wait(30).started("fetch").ok("fetch").started("deploy").ok("deploy")
    past = travel(FLOW, history.log)[1]

    for seq in (len(history.log), 1, 7, 3):
        assert past.at(1, seq).state == fold(FLOW, history.log[:seq])
        assert sum(one.place_count for one in past._runs.values()) <= 40


def test_a_moment_says_what_is_waited_for_which_timers_are_due_and_why_the_next_decision_was_taken():
    history = flaky()
    failed = len(history.log)
    history.wait(30).started("fetch")
    moment = travel(FLOW, history.log)[0].moment(1, failed)

    assert moment.is_at_rest and moment.run.status == "running"
    assert moment.run.steps["fetch"].status == "backing_off"
    assert [one.kind for one in moment.run.steps["deploy"].waiting_for] == ["needs"]
    assert [(one.kind, one.place, one.text) for one in moment.timers] == [("retry", "fetch", "attempt 2 is due in 30s")]
    assert moment.turn.report == "attempt 1 of 'fetch' was reported to have ended"
    assert "rule for exit code 11" in moment.event.text
    assert moment.next is not None and moment.next.report == "the delay before attempt 2 of 'fetch' was over"


def test_in_the_middle_of_a_turn_the_rest_of_it_comes_next():
    history = flaky()
    moment = travel(FLOW, history.log)[0].moment(1, len(history.log) - 1)

    assert not moment.is_at_rest
    assert moment.next is not None and moment.next.report == f"it follows from event {moment.seq}"


@pytest.mark.parametrize("turn_max", [2, 3, 200])
def test_the_end_of_the_turn_before_is_found_however_long_the_turn_is(monkeypatch: pytest.MonkeyPatch, turn_max: int):
    monkeypatch.setattr(past_states, "TURN_MAX", turn_max)
    flow = workflow(step("first"), *(step(f"s{number}", needs=["first"]) for number in range(40)))
    history = History(flow).start().started("first").ok("first")
    past = travel(flow, history.log)[1]

    rests = [0, *(one.seq for one, two in pairwise(history.log) if is_at_rest(one, two)), len(history.log)]

    assert [past.last_rest(1, one.seq) for one in history.log] == [
        max(seq for seq in rests if seq <= one.seq) for one in history.log
    ]


def test_a_moment_of_a_program_says_what_the_program_did_next():
    run = Program()
    run.say(run.load(1, branch="0"), run.load(2, branch="1")).started("load").ok("load")
    run.say(cancelled=(("1", 1),)).say(how="returned", output=5)
    found = travel(run.definition, run.log)[0]

    moments = [found.moment(1, entry.seq) for entry in run.log]

    said = [one.next.report for one in moments if one.next is not None and one.is_at_rest]
    assert said == [
        "'nightly' was to call 'load' for the first time",
        "'nightly' called 'load'",
        "'nightly' called 'load#2'",
        "'nightly' could not go on before a call of it had ended",
        "w1 took attempt 1 of 'load'",
        "attempt 1 of 'load' was reported to have ended",
        "w1 took turn 2 of 'nightly'",
        "'nightly' cancelled 'load#2'",
        "'nightly' could not go on before a call of it had ended",
        "w1 took turn 3 of 'nightly'",
        "'nightly' returned",
    ]
    waits = {wait.text for one in moments for wait in one.run.waiting_for if wait.place == "nightly"}
    assert {"its next turn", "its end"} < waits and not any("  " in one for one in waits)


def test_what_changed_between_two_events_has_steps_attempts_failures_outputs_and_waits():
    history = flaky()
    before = len(history.log)
    history.wait(30).started("fetch").ok("fetch", output={"rows": 3}).started("deploy").fail("deploy", 4)
    found = travel(FLOW, history.log)[0].compare(1, len(history.log), before)

    assert (found.a, found.b) == (before, len(history.log))
    changes = {one.name: {change.name: (change.before, change.after) for change in one.changes} for one in found.steps}
    assert changes["fetch"]["status"] == ("backing_off", "completed")
    assert changes["fetch"]["attempts"] == (1, 2)
    assert changes["fetch"]["output"] == (None, {"rows": 3})
    assert changes["deploy"]["waiting_for"] == (["'fetch' to complete"], [])
    assert [(one.step, one.code, one.is_handled) for one in found.failures] == [("deploy", "EXIT_NONZERO", False)]


def test_a_step_has_a_point_for_each_event_that_changed_it_also_for_one_that_is_not_about_it():
    history = flaky().wait(30).started("fetch").fail("fetch", 1).retry()
    found = travel(FLOW, history.log)[0].points(1, "fetch")

    statuses = [one.status for one in found.points]
    assert statuses[0] == "waiting" and found.points[0].event.type == "run.started"
    assert "backing_off" in statuses and "failed" in statuses
    reopened = next(one for one in found.points if one.event.type == "run.reopened")
    assert reopened.status == "waiting"
    assert found.then is not None and found.then.status == "ready"


def test_before_a_corrected_definition_the_run_has_the_steps_that_it_had_then():
    history = flaky().wait(30).started("fetch").fail("fetch", 1)
    ended = len(history.log)
    history.retry_with(workflow(step("fetch"), step("verify", needs=["fetch"])))
    found = travel(FLOW, history.log)[0]

    assert [*found.moment(1, ended).run.steps] == ["fetch", "deploy", "page"]
    assert [*found.moment(1, len(history.log)).run.steps] == ["fetch", "verify"]
    steps = {one.name: (one.before, one.after) for one in found.compare(1, ended, len(history.log)).steps}
    assert steps["verify"] == ("", "waiting") and steps["page"][1] == ""


def test_the_last_event_before_a_time_is_found_and_a_time_before_the_start_is_refused():
    history = flaky().wait(30).started("fetch")
    found = travel(FLOW, history.log)[0]

    for entry in history.log:
        last = max(one.seq for one in history.log if one.at <= entry.at)
        assert found.last_before(1, entry.at) == last
    with pytest.raises(InputInvalid):
        found.last_before(1, history.log[0].at.replace(year=2000))


@pytest.mark.parametrize("seq", [0, -1, 10_000])
def test_an_event_that_the_run_does_not_have_is_refused(seq: int):
    history = flaky()

    with pytest.raises(InputInvalid):
        travel(FLOW, history.log)[0].moment(1, seq)


def test_a_moment_is_plain_data():
    history = flaky()

    assert msgspec.json.encode(travel(FLOW, history.log)[0].moment(1, 2))


def test_a_fork_that_stops_before_anything_is_decided_is_refused_with_what_to_look_at():
    asking = step("ask", action=Action("agent", {"prompt": "What now?"}))
    parking = step("deploy", triage=Triage(when="always", timeout=600.0))
    flow = workflow(asking, parking, budget=Budget(calls=1), fail_fast="always")
    history = History(flow).start().started("ask").started("deploy").fail("deploy", 3)
    seq = len(history.log)
    decision = r.Classified(history.clock, "deploy", "retry", "ann", "again")
    request = r.RunRequested(
        history.clock, 0, history=pack_history(history.log), forked_from=1, forked_at=seq, decision=decision
    )
    changes: Any = SimpleNamespace(reader=None)
    past: Any = None

    with pytest.raises(Refused, match="there is nothing to decide") as refused:
        EventForks(changes, past)._preview(request, State(flow), asked=seq, evaluator=history.evaluator)

    command = f"mulligan replay 1 --at {seq} --fork-here --dry-run"
    assert refused.value.hint == f"see what follows without a decision: {command}"
