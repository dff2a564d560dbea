"""Breakers: asked when a task is leased, counted where a result is accepted, one for all runs of a store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.keeping import T0, Open, Place, commit, ended, offer, queue, reports, started, task, worker

from mulligan.core.deciding.workers.breaker import Guard, GuardedOutcome, Verdict
from mulligan.core.effects.effects import SetTimer, StopTask
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Breaker
from mulligan.errors import Conflict, StaleLease
from mulligan.ports import BreakerRecord, Lease, Store, Turn

pytestmark = pytest.mark.postgres

RESET = 60.0
LLM = Guard("llm", Breaker(failures=2, reset=RESET))
HASTY = Guard("llm", Breaker(failures=2, reset=RESET, when_open="fail"))

FAILED = Outcome(exit_code=1)


def guarded(turn: Turn, place: str = "ask", guard: Guard = LLM, **fields: Any) -> Any:
    return task(turn.run_id, place, guard=guard, **fields)


def lease(store: Store, name: str = "w", **fields: Any) -> list[Lease]:
    return store.lease(name, offer(**fields))


def places(leases: list[Lease]) -> list[str]:
    return [one.task.place for one in leases]


def end(store: Store, held: Lease, outcome: Outcome = FAILED) -> None:
    """The task ends, and an engine that does not drive its run reports it."""
    report = r.TaskEnded(T0, held.task.place, held.task.attempt, outcome)
    store.report(held.token, report, guard=held.task.guard)


def settle(store: Store, turn: Turn, held: Lease, verdict: Verdict = "failure") -> None:
    """The task ends, and the engine that drives its run commits that."""
    assert held.task.guard is not None
    counted = [GuardedOutcome(held.token, held.task.guard, verdict)]
    store.commit([commit(turn, store.run(turn.run_id).seq, 0, ended=[held.token], counted=counted)])


def opened_by_failures(store: Store, turn: Turn, guard: Guard = LLM) -> None:
    """The breaker is open: as many tasks as it takes have failed."""
    names = [f"bad-{guard.name}-{number}" for number in range(guard.rules.failures)]
    queue(store, turn, *(guarded(turn, name, guard) for name in names))
    for held in lease(store):
        end(store, held)


def breaker(store: Store, name: str = "llm") -> BreakerRecord:
    (found,) = [record for record in store.breakers() if record.name == name]
    return found


def is_about(found: datetime | None, wanted: datetime) -> bool:
    """The server's clock goes on while we look at it."""
    return found is not None and abs(found - wanted) < timedelta(seconds=20)


# -- closed ----------------------------------------------------------------------------------------------------------


def test_a_store_that_no_guarded_task_was_leased_from_has_no_breakers(store: Store) -> None:
    queue(store, turn := started(store), guarded(turn), task(turn.run_id, "plain"))

    assert store.breakers() == []
    assert not store.reset_breaker("llm")


def test_a_closed_breaker_lets_everything_pass(store: Store) -> None:
    turn = started(store)
    queue(store, turn, guarded(turn, "a"), task(turn.run_id, "b"), guarded(turn, "c"))

    assert places(lease(store)) == ["a", "b", "c"]
    assert store.breakers() == [BreakerRecord("llm", "closed", running=2)]


def test_guarded_tasks_alone_are_handed_out_where_only_they_are_asked_for(store: Store) -> None:
    turn = started(store)
    queue(store, turn, guarded(turn, "a"), task(turn.run_id, "b"), guarded(turn, "c"))

    found = store.lease("w", offer(), is_guarded=True)

    assert places(found) == ["a", "c"]
    assert places(lease(store)) == ["b"]


def test_guarded_tasks_alone_are_those_of_runs_whose_turn_one_has(store: Store) -> None:
    mine, theirs = started(store), started(store, holder="other")
    queue(store, theirs, guarded(theirs, "theirs"))
    queue(store, mine, guarded(mine, "mine"))

    assert places(store.lease("w", offer(), is_guarded=True)) == ["mine"]
    assert places(store.lease("other", offer(), is_guarded=True)) == ["theirs"]


def test_a_leased_task_has_its_guard(store: Store) -> None:
    turn = started(store)
    queue(store, turn, guarded(turn, guard=HASTY))

    (held,) = lease(store)

    assert held.task.guard == HASTY


@pytest.mark.parametrize("by", ["report", "commit"])
def test_failures_are_counted_where_the_result_is_accepted(store: Store, by: str) -> None:
    turn = started(store)
    queue(store, turn, guarded(turn, "a"), guarded(turn, "b"), guarded(turn, "c"))
    one, two, three = lease(store)

    for held in (one, two):
        end(store, held) if by == "report" else settle(store, turn, held)

    assert (breaker(store).status, breaker(store).failures) == ("open", 2)
    # what was under way when it opened is let be, and counts no more
    end(store, three, Outcome()) if by == "report" else settle(store, turn, three, "success")
    assert breaker(store).status == "open"


@pytest.mark.parametrize("by", ["report", "commit"])
def test_a_success_between_two_failures_starts_the_count_anew(store: Store, by: str) -> None:
    turn = started(store)
    queue(store, turn, guarded(turn, "a"), guarded(turn, "b"), guarded(turn, "c"))
    one, two, three = lease(store)

    for held, is_well in ((one, False), (two, True), (three, False)):
        if by == "report":
            end(store, held, Outcome() if is_well else FAILED)
        else:
            settle(store, turn, held, "success" if is_well else "failure")

    assert store.breakers() == [BreakerRecord("llm", "closed", 1, max_running=1)]


def test_a_result_that_is_refused_counts_nothing(store: Store) -> None:
    turn = started(store)
    queue(store, turn, guarded(turn))
    (held,) = lease(store)
    end(store, held)

    with pytest.raises(StaleLease):
        end(store, held)
    with pytest.raises(Conflict):
        settle(store, turn, held)

    assert breaker(store).failures == 1


def test_the_failures_of_one_batch_count_together(store: Store) -> None:
    one, two = started(store), started(store)
    queue(store, one, guarded(one))
    queue(store, two, guarded(two))
    held = dict(zip((one, two), lease(store), strict=True))

    store.commit(
        [
            commit(turn, 0, 0, ended=[lease.token], counted=[GuardedOutcome(lease.token, LLM, "failure")])
            for turn, lease in held.items()
        ]
    )

    assert breaker(store).status == "open"


def test_a_batch_that_is_refused_counts_nothing(store: Store) -> None:
    turn = started(store)
    queue(store, turn, guarded(turn))
    (held,) = lease(store)

    with pytest.raises(Conflict):
        counted = [GuardedOutcome(held.token, LLM, "failure")]
        store.commit([commit(turn, 17, 0, ended=[held.token], counted=counted)])

    assert (breaker(store).failures, store.leases_of("w")) == (0, [held])


# -- how many run at once --------------------------------------------------------------------------------------------

EXACT = Guard("llm", Breaker(failures=3, reset=RESET, when_open="fail", max_parallel=3))


def test_after_a_failure_only_as_many_run_as_may_still_fail(store: Store) -> None:
    turn, guard = started(store), Guard("llm", Breaker(failures=4, reset=RESET))
    queue(store, turn, *(guarded(turn, f"a{number}", guard) for number in range(4)))
    first, *others = lease(store)
    end(store, first)
    queue(store, turn, *(guarded(turn, f"b{number}", guard) for number in range(9)), task(turn.run_id, "plain"))

    assert places(lease(store, tasks_max=2)) == ["plain"]
    assert (breaker(store).running, breaker(store).max_running, breaker(store).is_full) == (3, 3, True)
    # two more have failed: one may run, and one does
    for held in others[:2]:
        end(store, held)
    assert (lease(store), breaker(store).max_running) == ([], 1)
    # a success: as many as there are
    end(store, others[2], Outcome())
    assert len(lease(store)) == 9


def test_no_more_run_at_once_than_the_workflow_allows_over_all_workers(opened: Open) -> None:
    one, two = opened(), opened()
    turn = started(one)
    two.register(worker("other"))
    queue(one, turn, *(guarded(turn, f"a{number}", EXACT) for number in range(20)), task(turn.run_id, "plain"))

    first, second = lease(one, tasks_max=2), lease(two, "other", tasks_max=8)

    assert places(first) == ["a0", "a1"]
    assert places(second) == ["a2", "plain"]
    assert (lease(one), lease(two, "other")) == ([], [])
    assert breaker(one) == BreakerRecord("llm", "closed", waiting=17, running=3, max_running=3)


@pytest.mark.parametrize("outcome", [FAILED, Outcome(), Outcome(signal=15, is_stopped=True)])
def test_a_task_that_has_ended_makes_room_for_as_many_as_may_still_fail(store: Store, outcome: Outcome) -> None:
    turn = started(store)
    queue(store, turn, *(guarded(turn, f"a{number}", EXACT) for number in range(9)))
    held = lease(store)

    end(store, held[0], outcome)

    # after a failure two of two run already
    assert len(lease(store)) == (0 if outcome is FAILED else 1)


def test_room_is_made_by_the_end_of_a_worker(store: Store) -> None:
    turn = started(store)
    store.register(worker("mortal"))
    queue(store, turn, *(guarded(turn, f"a{number}", EXACT) for number in range(9)))
    assert len(lease(store, "mortal")) == 3

    store.expire("mortal", is_dead=True)

    assert places(lease(store)) == ["a3", "a4", "a5"]


def test_exactly_so_many_fail_and_whoever_waits_is_told_that_it_is_open(store: Store) -> None:
    turn = started(store)
    queue(store, turn, *(guarded(turn, f"a{number}", EXACT) for number in range(20)))
    called = []

    while leases := lease(store):
        called += places(leases)
        for held in leases:
            end(store, held)

    assert called == ["a0", "a1", "a2"]
    assert breaker(store).status == "open"
    assert store.queued_tasks(turn.run_id) == []
    told = [one for one in reports(store, turn.run_id) if isinstance(one, r.TaskEnded)]
    assert [one.outcome.code for one in told].count("CIRCUIT_OPEN") == 17


def test_of_two_definitions_the_stricter_holds_nobody_for_ever(store: Store) -> None:
    turn, strict = started(store), Guard("llm", Breaker(failures=2, max_parallel=1))
    queue(store, turn, *(guarded(turn, f"a{number}", guard) for number, guard in enumerate([EXACT, EXACT, strict] * 2)))
    called = []

    while leases := lease(store, tasks_max=1):
        called += places(leases)
        end(store, leases[0], Outcome())

    assert called == [f"a{number}" for number in range(6)]


def test_a_breaker_that_is_reset_keeps_its_limit(store: Store) -> None:
    turn = started(store)
    queue(store, turn, *(guarded(turn, f"a{number}", EXACT) for number in range(5)))
    lease(store)

    store.reset_breaker("llm")

    assert lease(store) == []
    assert breaker(store).is_full


# -- open ------------------------------------------------------------------------------------------------------------


def test_behind_an_open_breaker_tasks_stay_queued_and_keep_nobody_else_waiting(store: Store) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, *(guarded(turn, f"a{number}") for number in range(5)), task(turn.run_id, "plain"))

    found = lease(store, tasks_max=2)

    assert places(found) == ["plain"]
    assert store.queued_tasks(turn.run_id) == [(f"a{number}", 1) for number in range(5)]
    assert breaker(store).waiting == 5


def test_an_open_breaker_is_open_for_all_runs_of_the_store_and_for_no_other_breaker(opened: Open) -> None:
    one, two = opened(), opened()
    first = started(one)
    opened_by_failures(one, first)
    second = started(two, holder="other")

    queue(two, second, guarded(second, "a"), guarded(second, "b", Guard("db", Breaker())))

    assert places(lease(two, "other")) == ["b"]


def test_it_is_still_open_when_the_store_is_opened_again(opened: Open) -> None:
    first = opened()
    turn = started(first)
    opened_by_failures(first, turn)
    queue(first, turn, guarded(turn))
    seen = first.breakers()
    first.close()

    again = opened()

    assert (again.breakers(), lease(again)) == (seen, [])


def test_who_will_not_wait_leaves_the_queue_and_its_run_is_told_until_when(store: Store) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    before = len(reports(store, turn.run_id))
    queue(store, turn, guarded(turn, "a", HASTY), guarded(turn, "b"), guarded(turn, "c", HASTY), task(turn.run_id, "d"))

    found = lease(store, tasks_max=2)

    retry_at = breaker(store).retry_at
    assert retry_at is not None and places(found) == ["d"]
    assert store.queued_tasks(turn.run_id) == [("b", 1)]
    told = [one for one in reports(store, turn.run_id)[before:] if isinstance(one, r.TaskEnded)]
    assert [(one.place, one.attempt, one.outcome.code) for one in told] == [
        ("a", 1, "CIRCUIT_OPEN"),
        ("c", 1, "CIRCUIT_OPEN"),
    ]
    assert told[0].outcome.details == {"breaker": "llm", "retry_at": retry_at.isoformat()}
    assert told[0].outcome.message == f"breaker 'llm' is open until {retry_at:%Y-%m-%d %H:%M:%S} UTC"


# -- half open -------------------------------------------------------------------------------------------------------


def test_when_the_reset_is_over_one_lease_is_the_probe_and_keeps_nobody_else_waiting(
    store: Store, place: Place
) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, *(guarded(turn, f"a{number}") for number in range(5)), task(turn.run_id, "plain"))
    place.pass_time(RESET)

    found = lease(store, tasks_max=2)

    assert places(found) == ["a0", "plain"]
    assert breaker(store).status == "half_open"
    assert lease(store) == []


def test_of_two_rivals_one_has_the_probe(opened: Open, place: Place) -> None:
    one, two = opened(), opened()
    turn = started(one)
    two.register(worker("other"))
    opened_by_failures(one, turn)
    queue(one, turn, guarded(turn, "a"), guarded(turn, "b", HASTY))
    place.pass_time(RESET)

    first, second = lease(one), lease(two, "other")

    # who would rather fail waits too: the answer is near
    assert (places(first), second) == (["a"], [])
    assert one.queued_tasks(turn.run_id) == [("b", 1)]


@pytest.mark.parametrize("by", ["report", "commit"])
def test_the_probes_success_lets_everybody_pass(store: Store, place: Place, by: str) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn, "a"), guarded(turn, "b"), guarded(turn, "c"))
    place.pass_time(RESET)
    (probe,) = lease(store)

    end(store, probe, Outcome()) if by == "report" else settle(store, turn, probe, "success")

    assert store.breakers() == [BreakerRecord("llm", "closed", waiting=2)]
    assert places(lease(store)) == ["b", "c"]


@pytest.mark.parametrize("by", ["report", "commit"])
def test_the_probes_failure_opens_it_again_for_as_long(store: Store, place: Place, by: str) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn, "a"), guarded(turn, "b"))
    place.pass_time(RESET)
    (probe,) = lease(store)

    end(store, probe) if by == "report" else settle(store, turn, probe)

    assert (breaker(store).status, breaker(store).failures) == ("open", 3)
    assert is_about(breaker(store).retry_at, place.now() + timedelta(seconds=RESET))
    assert lease(store) == []


@pytest.mark.parametrize("by", ["report", "commit"])
def test_a_probe_that_was_cancelled_lets_the_next_lease_be_the_probe(store: Store, place: Place, by: str) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn, "a"), guarded(turn, "b"), guarded(turn, "c"))
    place.pass_time(RESET)
    (probe,) = lease(store)

    if by == "report":
        end(store, probe, Outcome(signal=15, is_stopped=True))
    else:
        settle(store, turn, probe, "neither")

    assert places(lease(store)) == ["b"]
    assert breaker(store).status == "half_open"


def test_a_probe_that_is_lost_with_its_worker_lets_the_next_lease_be_the_probe(store: Store, place: Place) -> None:
    turn = started(store)
    store.register(worker("mortal"))
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn, "a"), guarded(turn, "b"), guarded(turn, "c"))
    place.pass_time(RESET)
    (probe,) = lease(store, "mortal")

    store.expire("mortal", is_dead=True)

    (next_probe,) = lease(store)
    assert (probe.task.place, next_probe.task.place) == ("a", "b")
    # what the lost one would have said counts no more
    with pytest.raises(StaleLease):
        end(store, probe)
    assert breaker(store).status == "half_open"
    end(store, next_probe, Outcome())
    assert breaker(store).status == "closed"


def test_a_probe_whose_run_has_ended_without_it_lets_the_next_lease_be_the_probe(store: Store, place: Place) -> None:
    turn, other = started(store), started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn, "a"))
    queue(store, other, guarded(other, "b"))
    place.pass_time(RESET)
    lease(store)

    store.commit([commit(turn, 0, status="cancelled", is_last=True)])

    assert places(lease(store)) == ["b"]


def test_a_probe_does_not_need_the_room_that_it_does_not_get(store: Store, place: Place) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn, "large", cpus=8.0), guarded(turn, "small"))
    place.pass_time(RESET)

    assert places(lease(store, cpus=2.0)) == ["small"]


# -- which tasks -----------------------------------------------------------------------------------------------------


def test_a_guarded_task_of_a_paused_run_or_another_root_is_not_handed_out(store: Store) -> None:
    paused, other = started(store), started(store)
    queue(store, paused, guarded(paused, "a"))
    queue(store, other, guarded(other, "b"))
    store.commit([commit(paused, 0, status="paused")])

    assert store.lease("w", offer(), root_run_id=paused.run_id, is_guarded=True) == []
    assert places(store.lease("w", offer(), is_guarded=True)) == ["b"]


def test_a_guarded_task_goes_to_its_own_host_while_that_is_there(store: Store) -> None:
    turn = started(store)
    store.register(worker("theirs", host="there"))
    queue(store, turn, guarded(turn, host="there"))

    assert store.lease("w", offer(), is_guarded=True) == []
    assert places(lease(store, "theirs", host="there")) == ["ask"]


def test_a_guarded_task_that_is_stopped_in_the_queue_is_gone(store: Store) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn))
    (run_id, place_, attempt) = (turn.run_id, "ask", 1)

    store.commit([commit(turn, store.run(run_id).seq, 0, stopped=[stop(place_, attempt)])])

    assert (store.queued_tasks(run_id), breaker(store).waiting) == ([], 0)


# -- time ------------------------------------------------------------------------------------------------------------


def test_the_next_due_time_is_when_a_breaker_that_tasks_wait_for_may_be_probed(store: Store, place: Place) -> None:
    turn, other = started(store), started(store)
    opened_by_failures(store, turn)
    assert store.next_due() is None

    queue(store, turn, guarded(turn))

    due = breaker(store).retry_at
    assert is_about(due, place.now() + timedelta(seconds=RESET))
    assert (store.next_due(), store.next_due(turn.run_id), store.next_due(other.run_id)) == (due, due, None)
    # from then on it is a task like any other
    place.pass_time(RESET)
    assert (store.next_due(), store.fire_timers()) == (None, 0)


def test_a_timer_before_and_a_timer_behind_the_breakers_time_both_count(store: Store, place: Place) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn))
    retry_at = breaker(store).retry_at
    assert retry_at is not None

    store.commit([commit(turn, 0, 0, timers=[timer(retry_at + timedelta(seconds=9))])])
    assert store.next_due() == retry_at
    store.commit([commit(turn, 0, 0, timers=[timer(retry_at - timedelta(seconds=9))])])
    assert store.next_due() == retry_at - timedelta(seconds=9)


def test_a_paused_run_waits_for_no_breaker(store: Store) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn))

    store.commit([commit(turn, 0, status="paused")])

    assert store.next_due() is None


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_a_breaker_that_is_reset_lets_everybody_pass_at_once(store: Store) -> None:
    turn = started(store)
    opened_by_failures(store, turn)
    queue(store, turn, guarded(turn, "a"), guarded(turn, "b"))

    assert store.reset_breaker("llm")

    assert store.breakers() == [BreakerRecord("llm", "closed", waiting=2)]
    assert places(lease(store)) == ["a", "b"]


def test_an_unguarded_report_touches_no_breaker(store: Store) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id))
    (held,) = lease(store)

    store.report(held.token, ended())

    assert store.breakers() == []


def stop(place: str, attempt: int) -> StopTask:
    return StopTask(place, attempt, 0.0)


def timer(due: datetime) -> SetTimer:
    return SetTimer("retry", due, "b", 2)
