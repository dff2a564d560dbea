"""News: what another process writes for us is noticed, and what we write ourselves is none."""

from __future__ import annotations

import select
from collections.abc import Callable

import pytest
from tests.support.keeping import T0, Open, commit, ended, has_news, new_run, offer, queue, started, take, task, worker

from mulligan.core.deciding.workers.breaker import Guard, GuardedOutcome
from mulligan.core.effects.effects import SetTimer, StopTask
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Breaker
from mulligan.ports import Store, Turn

pytestmark = pytest.mark.postgres

CANCEL = r.CancelRequested(T0)

Act = Callable[[Store, Turn, Turn], object]


def put(store: Store, mine: Turn, theirs: Turn) -> object:
    return store.put(mine.run_id, CANCEL)


def tell(store: Store, mine: Turn, theirs: Turn) -> object:
    return store.commit([commit(theirs, outgoing=[(mine.run_id, CANCEL)])])


def queue_one(store: Store, mine: Turn, theirs: Turn) -> object:
    return store.commit([commit(theirs, queued=[task(theirs.run_id)])])


def create(store: Store, mine: Turn, theirs: Turn) -> object:
    return store.create([new_run()])


def lease(store: Store, mine: Turn, theirs: Turn) -> object:
    return store.lease("other", offer(), root_run_id=mine.run_id)


def report(store: Store, mine: Turn, theirs: Turn) -> object:
    (held,) = store.leases_of("third")
    return store.report(held.token, ended())


def stop(store: Store, mine: Turn, theirs: Turn) -> object:
    return store.commit([commit(theirs, stopped=[StopTask("shared", 1, 0.0)])])


def expire(store: Store, mine: Turn, theirs: Turn) -> object:
    return store.expire("third", is_dead=True)


def fire(store: Store, mine: Turn, theirs: Turn) -> object:
    assert store.fire_timers() == 1
    return None


@pytest.mark.parametrize(
    "act", [put, tell, queue_one, create, lease, report, stop, expire, fire], ids=lambda act: act.__name__
)
def test_what_another_process_writes_for_us_is_news_once(opened: Open, act: Act) -> None:
    mine, other = opened(), opened()
    my_turn = started(mine)
    mine.register(worker("third"))
    queue(mine, my_turn, task(my_turn.run_id, "held"))
    mine.lease("third", offer())
    queue(mine, my_turn, task(my_turn.run_id, "free"))
    mine.commit([commit(my_turn, timers=[SetTimer("run", T0)])])
    their_turn = started(other, holder="other")
    queue(other, their_turn, task(their_turn.run_id, "shared"))
    mine.lease("w", offer(), root_run_id=their_turn.run_id)
    has_news(mine)
    version = mine.version()

    act(other, my_turn, their_turn)

    assert version is None or mine.version() != version
    assert wakes(mine)
    assert has_news(mine)
    assert not has_news(mine)


def test_that_a_breaker_has_opened_or_closed_is_news(opened: Open) -> None:
    mine, other = opened(), opened()
    turn = started(other)
    guard = Guard("llm", Breaker(failures=1))
    queue(other, turn, task(turn.run_id, guard=guard))
    (held,) = other.lease("w", offer())
    has_news(mine)

    failed = [GuardedOutcome(held.token, guard, "failure")]
    other.commit([commit(turn, ended=[held.token], counted=failed)])
    assert wakes(mine)
    assert has_news(mine)
    assert not has_news(mine)

    other.reset_breaker("llm")
    assert wakes(mine)
    assert has_news(mine)


def test_that_a_task_behind_a_limit_has_ended_is_news(opened: Open) -> None:
    mine, other = opened(), opened()
    turn, guard = started(other), Guard("llm", Breaker(max_parallel=1))
    queue(other, turn, task(turn.run_id, "a", guard=guard), task(turn.run_id, "b", guard=guard))
    (held,) = other.lease("w", offer())
    has_news(mine)

    # not even a failure or a success: it was cancelled
    other.commit([commit(turn, ended=[held.token], counted=[GuardedOutcome(held.token, guard, "neither")])])

    assert wakes(mine)
    assert has_news(mine)


def test_what_we_write_ourselves_is_no_news_to_us(opened: Open) -> None:
    mine, other = opened(), opened()
    turn = started(mine)
    has_news(mine)

    mine.put(turn.run_id, CANCEL)
    queue(mine, turn, task(turn.run_id))
    take(mine, turn, task(turn.run_id, "a"))
    assert not has_news(mine)

    other.put(turn.run_id, CANCEL)
    assert has_news(mine)
    mine.put(turn.run_id, CANCEL)
    assert not has_news(mine)


def test_what_was_written_before_the_first_question_is_not_missed(opened: Open) -> None:
    mine, other = opened(), opened()
    turn = started(mine)

    other.put(turn.run_id, CANCEL)

    assert has_news(mine)


def test_that_a_run_has_ended_is_news_to_whoever_wants_to_hear_it(opened: Open) -> None:
    mine, other = opened(), opened()
    turn = started(other)
    has_news(mine)
    mine.watch_run_ends()
    has_news(mine)

    other.commit([commit(turn, 0, status="completed", is_last=True)])

    assert wakes(mine)
    assert has_news(mine)
    assert not has_news(mine)


def test_a_report_for_a_run_wakes_the_worker_that_holds_it_and_no_other(opened: Open) -> None:
    holding, idle, working = opened(), opened(), opened()
    if not holding.is_shared:
        pytest.skip("only a server notifies")
    turn = started(holding)
    idle.register(worker("idle"))
    working.register(worker("working"))
    queue(holding, turn, task(turn.run_id))
    (lease,) = working.lease("working", offer())
    has_news(holding)
    has_news(idle)

    working.report(lease.token, ended())

    assert wakes(holding)
    assert has_news(holding)
    assert not has_news(idle)


def wakes(store: Store) -> bool:
    """Whether the store wakes whoever waits for it, as an engine does. Where one cannot wait for it, nothing has to."""
    descriptor = store.fileno()
    return descriptor is None or bool(select.select([descriptor], [], [], 60)[0])


def test_the_mark_of_the_queue_differs_once_a_task_is_queued_or_asked_to_stop(opened: Open) -> None:
    store = opened()
    turn = started(store)
    marks = [store.queue_mark()]

    queue(store, turn, task(turn.run_id))
    marks.append(store.queue_mark())
    store.lease("w", offer())
    store.commit([commit(turn, stopped=[StopTask("build", 1, 0.0)])])
    marks.append(store.queue_mark())

    assert len(set(marks)) == 3
