"""The player: real core, assumed outcomes, time that jumps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from mulligan.analysis.playing.outcomes import Assumed, AssumedChild, Decision
from mulligan.analysis.playing.player import START, Player
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Action, Triage, Workflow
from mulligan.core.state.state import Place, State
from mulligan.core.turn import fold
from mulligan.testing.history import Answers, edge, handler, retry, step, workflow


class AllWell:
    """Every task succeeds at once, child runs are played, approvals are given, and nobody decides about failures."""

    def of_task(self, state: State, place: Place, task: Any, at: datetime) -> Assumed:
        return Assumed()

    def of_child(self, state: State, place: Place, child: Any, at: datetime) -> AssumedChild | None:
        return None

    def of_event(self, state, place, at) -> None:
        return None

    def of_person(self, state: State, place: Place, at: datetime) -> Decision | None:
        return None if place.status == "pending_failed" else Decision("approve")


class Ends(AllWell):
    """Attempts end as listed by place, then well; child runs and people by what a test says."""

    def __init__(self, child: AssumedChild | None = None, decision: Decision | None = None, **by_place: Any) -> None:
        self.by_place = {key: list(ends) for key, ends in by_place.items()}
        self.child, self.decision = child, decision

    def of_task(self, state, place, task, at) -> Assumed:
        ends = self.by_place.get(place.key, [])
        return ends.pop(0) if ends else Assumed(seconds=1.0)

    def of_child(self, state, place, child, at) -> AssumedChild | None:
        return self.child

    def of_event(self, state, place, at) -> None:
        return None

    def of_person(self, state, place, at) -> Decision | None:
        return self.decision


FAILS = Assumed(Outcome(exit_code=3), 2.0)


def play(definition: Workflow, outcomes: Any, **fields: Any) -> Player:
    player = Player(definition, evaluator=Answers(), outcomes=outcomes, **fields)
    player.play()
    return player


def facts(player: Player, *kinds: type[e.Fact]) -> list[Any]:
    return [entry.fact for entry in player.entries if isinstance(entry.fact, kinds)]


def test_a_run_without_failures_takes_the_time_of_its_longest_path():
    played = play(workflow(step("a"), step("b", needs=["a"]), step("c")), Ends(c=[Assumed(seconds=5.0)]))

    assert played.ending().status == "completed"
    assert played.ending().seconds == 5.0


def test_a_retry_waits_for_its_delay():
    played = play(workflow(step("a", rules=retry(2, delay=60.0))), Ends(a=[FAILS, FAILS]))

    assert played.ending().status == "completed"
    assert played.ending().seconds == 2 + 60 + 2 + 60 + 1
    assert played.state.places["a"].attempt == 3


def test_an_attempt_ends_at_its_timeout_as_a_worker_would_end_it():
    played = play(workflow(step("a", timeout=30.0)), Ends(a=[Assumed(seconds=31.0)]))

    (failed,) = facts(played, e.AttemptFailed)
    assert failed.failure.code == "TIMEOUT"
    assert played.ending().seconds == 30.0


def test_a_lost_worker_spends_no_retry():
    played = play(workflow(step("a")), Ends(a=[Assumed(is_lost=True)]))

    assert played.ending().status == "completed"
    assert len(facts(played, e.AttemptLost)) == 1


def test_a_parked_step_waits_for_ever_unless_somebody_decides():
    definition = workflow(step("a", triage=Triage()))

    waiting = play(definition, Ends(a=[FAILS])).ending()
    decided = play(definition, Ends(a=[FAILS], decision=Decision("retry", seconds=600.0))).ending()

    assert (waiting.status, waiting.waits_for) == ("waiting", ("a",))
    assert (decided.status, decided.seconds) == ("completed", 2 + 600 + 1)


def test_an_approval_is_given_or_refused():
    definition = workflow(step("a", action=Action("approve", {"text": "go?"})))

    assert play(definition, Ends(decision=Decision("approve"))).ending().status == "completed"
    assert play(definition, Ends(decision=Decision("refuse"))).ending().status == "failed"


CHILD = workflow(step("inner", rules=retry(1)))


def parent(**fields: Any) -> Workflow:
    return workflow(
        step("call", action=Action("workflow", {"file": "child.yaml"}), **fields), children={"child.yaml": CHILD}
    )


def test_a_child_run_is_played_and_its_failure_fails_the_step():
    played = play(parent(), Ends(inner=[FAILS, FAILS]))

    (failed,) = facts(played, e.StepFailed)
    assert failed.failure.code == "CHILD_FAILED"
    assert [run.state.run.run_id for run in played.runs] == [1, 2]
    assert played.runs[1].state.run.status == "failed"


def test_a_retried_step_continues_its_child_run():
    played = play(parent(rules=retry(1)), Ends(inner=[FAILS, FAILS]))

    assert [(run.state.run.status, run.state.run.round) for run in played.runs] == [("completed", 1), ("completed", 2)]


def test_a_child_run_may_be_assumed_instead():
    played = play(parent(), Ends(child=AssumedChild("failed", seconds=7.0, reason="no disk")))

    assert len(played.runs) == 1
    assert played.ending().seconds == 7.0
    assert "no disk" in facts(played, e.StepFailed)[0].failure.message


def test_cancelling_a_run_stops_its_tasks_and_its_child_runs():
    player = Player(parent(), evaluator=Answers(), outcomes=Ends())
    player.start()
    player.report(r.CancelRequested(player.now, "someone"))

    assert player.play().status == "cancelled"
    assert [run.state.run.status for run in player.runs] == ["cancelled", "cancelled"]


def test_branches_nest_and_leave_nothing_behind():
    definition = workflow(
        step("a", rules=retry(1), on_failure=handler("fix")),
        step("b", needs=["a"], next=[edge("c", "failure", then="rerun")]),
        step("c"),
        step("call", action=Action("workflow", {"file": "child.yaml"})),
        children={"child.yaml": CHILD},
    )
    straight = play(definition, AllWell())
    player = Player(definition, evaluator=Answers(), outcomes=AllWell())
    player.start()

    while not player.root.has_ended:
        before, length = list(player.entries), len(player.runs)
        player.branch()
        player.outcomes = Ends(a=[FAILS] * 5, b=[FAILS], inner=[FAILS])
        player.step()
        if not player.root.has_ended:
            player.branch()
            player.report(r.CancelRequested(player.now, "someone", now=True))
            assert player.play().status == "cancelled"
            player.rollback()
        player.play()
        player.rollback()
        player.outcomes = AllWell()
        assert player.entries == before
        assert len(player.runs) == length
        assert player.state == fold(definition, player.entries)
        player.step()

    assert player.entries == straight.entries
    assert player.state == straight.state


def test_a_watcher_stops_a_play_in_the_middle_of_a_turn():
    player = Player(workflow(step("a"), step("b", needs=["a"])), evaluator=Answers(), outcomes=AllWell())
    player.start()
    player.branch()
    player.watch = lambda run, entry: isinstance(entry.fact, e.StepCompleted)

    player.play()

    assert player.is_stopped
    assert isinstance(player.entries[-1].fact, e.StepCompleted)
    player.rollback()
    player.watch = None
    assert player.play().status == "completed"


def test_the_log_of_a_play_is_a_log():
    definition = workflow(step("a", rules=retry(1, delay=5.0)), step("w", action=Action("wait", {"seconds": 3})))
    played = play(definition, Ends(a=[FAILS]))

    assert fold(definition, played.entries) == played.state
    assert [entry.seq for entry in played.entries] == list(range(1, len(played.entries) + 1))
    assert played.entries[0].at == START
    assert played.entries[-1].at == START + timedelta(seconds=2 + 5 + 1)
