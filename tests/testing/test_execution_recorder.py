"""The witness of a simulated world finds what no store keeps: tasks that run twice, void words, the dead unburied."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from mulligan.core.deciding.breaker import Guard, GuardedOutcome, Verdict
from mulligan.core.effects.effects import StopTask
from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Breaker
from mulligan.errors import StaleLease
from mulligan.ports import Commit, CommitResult, Lease, Turn, WorkerRecord
from mulligan.testing.clock import START, JumpingClock
from mulligan.testing.databases import DATABASES, LEASE_SECONDS
from mulligan.testing.execution_recorder import ExecutionRecorder, Outage, WorkerSearch
from mulligan.testing.fake_tasks import FakeTasks
from mulligan.testing.fault_budget import FaultBudget
from mulligan.testing.history import step, workflow
from mulligan.testing.simulated_cluster import SimulatedCluster
from mulligan.testing.store_contents import BreakerRow
from mulligan.testing.timer_checks import CountedClock


def make(lease_seconds: float | None = None) -> ExecutionRecorder:
    return ExecutionRecorder(DATABASES["memory"](), lease_seconds)


def executor(
    recorder: ExecutionRecorder, name: str, host: str = "h1", watchdog_seconds: float | None = None
) -> FakeTasks:
    made = FakeTasks(name, host, JumpingClock(), 4, watchdog_seconds, recorder.on_start)
    recorder.watch(made)
    return made


def lease(token: int, attempt: int = 1, place: str = "a") -> Lease:
    return Lease(Task(1, place, attempt, "shell", {}, "test", "v", place, 1, "step"), "h1.1", token)


STARTED, STOPPING = e.AttemptStarted("a", 1, "h1.1"), e.AttemptStopping("a", 1, "stopping")


# -- tasks -----------------------------------------------------------------------------------------------------------


def test_a_lease_that_is_started_again_is_found() -> None:
    recorder = make()
    one = executor(recorder, "h1.1")
    one.start([lease(7)])
    one.end(lease(7), TaskEnded(START, "a", 1))

    one.start([lease(7)])

    assert recorder.violations == ["promise 4: attempt 1 of 'a' in run 1 was started twice with one lease"]


def test_two_attempts_that_overlap_on_one_host_are_found() -> None:
    recorder = make()
    executor(recorder, "h1.1").start([lease(7)])

    executor(recorder, "h1.2").start([lease(8, attempt=2)])

    assert recorder.violations == ["promise 4: attempt 2 of 'a' in run 1 starts on h1, where h1.1 runs it"]


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_what_was_ended_or_runs_elsewhere_overlaps_with_nothing(host: str) -> None:
    recorder = make()
    executor(recorder, "h1.1").start([lease(7), lease(9, place="b")])
    if host == "h1":
        recorder.kill_leftovers("h1.1")

    executor(recorder, "h.2", host).start([lease(8, attempt=2)])

    assert recorder.violations == []


def test_what_a_supervisor_has_ended_since_no_renewal_came_does_not_run() -> None:
    clock = JumpingClock()
    cut_off = FakeTasks("h1.1", "h1", clock, 4, 20.0)
    cut_off.start([lease(7)])
    assert cut_off.token_of(1, "a") == 7

    clock.advance(20)

    assert cut_off.token_of(1, "a") is None


def test_what_has_ended_is_said_to_run_until_it_was_collected() -> None:
    one = FakeTasks("h1.1", "h1", JumpingClock(), 4)
    one.start([lease(7)])

    one.end(lease(7), TaskEnded(START, "a", 1))

    assert ([*one.running], [*one.unfinished]) == ([lease(7)], [])
    assert [ended for ended, _ in one.collect(0.0)] == [lease(7)]
    assert [*one.running] == []


@pytest.mark.parametrize(
    ("facts", "grace_seconds", "word"),
    [
        pytest.param([e.AttemptScheduled("a", 1), STARTED], 10.0, "", id="started"),
        pytest.param([STARTED, STOPPING], None, "", id="left to finish"),
        pytest.param([STARTED, STOPPING], 10.0, "AttemptStopping", id="to be stopped"),
        pytest.param([e.AttemptCancelled("a", 1)], 0.0, "AttemptCancelled", id="cancelled before it began"),
        pytest.param([e.AttemptStarted("a", 2, "h1.1")], 0.0, "nothing", id="another attempt"),
    ],
)
def test_a_task_that_its_turn_has_taken_starts_only_if_the_log_says_so(
    facts: list[e.Fact], grace_seconds: float | None, word: str
) -> None:
    recorder = make()
    entries = [e.Entry(number, START, 0, fact) for number, fact in enumerate(facts, 1)]
    commit = Commit(
        turn=Turn(1, "h1.1", 1),
        after=0,
        entries=entries,
        rows=(),
        status="running",
        round=1,
        at=START,
        stopped=[StopTask("a", 1, grace_seconds)],
    )
    recorder.note_commits([commit], [CommitResult([lease(7)])])

    executor(recorder, "h1.1").start([lease(7)])

    said = f"promise 6: attempt 1 of 'a' in run 1 starts, and the last word of its log on it is {word}"
    assert recorder.violations == ([said] if word else [])


class Process:
    """A worker on the host 'h1' that began its round at that time."""

    host = "h1"

    def __init__(self, stepped_at: float) -> None:
        self.clock = CountedClock(lambda: START, lambda: 0.0)
        self.stepped_at = stepped_at

    def time_of(self, run_id: int) -> datetime | None:
        return None


@pytest.mark.parametrize(
    ("belongs_to", "stepped_at", "cpus", "is_found"),
    [
        pytest.param("h2", 6.0, 1.0, True, id="its worker was there"),
        pytest.param("h2", 5.0, 1.0, False, id="its worker has come since"),
        pytest.param("h2", 6.0, 0.0, False, id="who is there takes no tasks"),
        pytest.param("h3", 6.0, 1.0, False, id="its host is gone"),
        pytest.param("h1", 6.0, 1.0, False, id="it belongs here"),
        pytest.param("", 6.0, 1.0, False, id="it belongs nowhere"),
    ],
)
def test_a_task_that_belongs_to_the_host_of_another_worker_is_found(
    belongs_to: str, stepped_at: float, cpus: float, is_found: bool
) -> None:
    database, clock = DATABASES["memory"](), JumpingClock()
    recorder = ExecutionRecorder(database, None)
    clock.advance(5)
    recorder.wrap(database.open(clock), clock).register(WorkerRecord("h2.1", "h2", 1, cpus=cpus))

    task = replace(lease(7).task, host=belongs_to)
    recorder.promise_15_what_belongs_to_a_host_runs_there([task], Process(stepped_at))

    assert [one.partition(":")[0] for one in recorder.violations] == ["promise 15"] * is_found


# -- whose word counts -----------------------------------------------------------------------------------------------


def test_a_report_about_a_lease_that_there_is_not_is_refused_and_one_that_is_taken_is_found() -> None:
    database = DATABASES["memory"]()
    recorder = ExecutionRecorder(database, None)

    with pytest.raises(StaleLease):
        recorder.wrap(database.open(JumpingClock()), JumpingClock()).report(7, TaskEnded(START, "a", 1))
    assert recorder.violations == []
    recorder.promise_2_a_void_lease_is_ignored([7], recorder.lease_tokens())

    assert recorder.violations == ["promise 2: a report about lease 7 was accepted, and there was no such lease"]


GUARD = Guard("net", Breaker(failures=2, reset=1.0))


def counted(*verdicts: Verdict) -> list[GuardedOutcome]:
    return [GuardedOutcome(7, GUARD, verdict) for verdict in verdicts]


@pytest.mark.parametrize(
    ("before", "outcomes", "sentence"),
    [
        (0, counted("failure"), "would be closed after 1"),
        (1, counted("neither", "failure"), "would be open after 2"),
        (0, counted("failure", "failure", "success"), "would be open after 2"),
    ],
)
def test_outcomes_that_a_breaker_has_not_counted_are_found(
    before: int, outcomes: list[GuardedOutcome], sentence: str
) -> None:
    recorder = make()

    recorder.promise_7_what_fails_in_a_row_opens_a_breaker(outcomes, {"net": BreakerRow("net", "closed", None, before)})

    assert recorder.violations == [f"promise 7: breaker 'net' is closed after 0 failures in a row, and {sentence}"]


@pytest.mark.parametrize(
    ("status", "outcomes"),
    [
        ("closed", counted("failure", "success")),
        ("closed", counted("neither")),
        # What the others say who left before it opened is not asked.
        ("half_open", counted("failure", "failure")),
    ],
)
def test_outcomes_that_change_nothing_about_a_breaker_are_no_finding(
    status: str, outcomes: list[GuardedOutcome]
) -> None:
    recorder = make()

    recorder.promise_7_what_fails_in_a_row_opens_a_breaker(outcomes, {"net": BreakerRow("net", status, None)})

    assert recorder.violations == []


# -- the dead --------------------------------------------------------------------------------------------------------


def test_the_dead_that_somebody_who_looked_has_not_buried_are_found() -> None:
    database, recorder = DATABASES["memory"](), make()
    database.open(JumpingClock()).register(WorkerRecord("h1.1", "h1", 1))
    recorder.check(database.read_contents())
    assert recorder.violations == []

    recorder.note_search(WorkerSearch(frozenset({"h1.1"}), START))
    recorder.check(database.read_contents())

    assert recorder.violations == ["promise 7: h1.1 is dead, workers were searched, and it was not expired"]


def test_a_heartbeat_that_is_too_old_is_found_when_somebody_has_looked_since() -> None:
    database, recorder = DATABASES["shared"](), make(LEASE_SECONDS)
    database.open(JumpingClock()).register(WorkerRecord("h1.1", "h1", 1))
    limit = START + timedelta(seconds=LEASE_SECONDS)

    recorder.note_search(WorkerSearch(frozenset(), limit))
    recorder.check(database.read_contents())
    assert recorder.violations == []
    recorder.note_search(WorkerSearch(frozenset(), limit + timedelta(seconds=1)))
    recorder.check(database.read_contents())

    assert recorder.violations == [f"promise 7: h1.1 has sent no heartbeat since {START}, and was not expired"]


def test_one_who_was_cut_off_himself_has_not_searched_for_old_heartbeats() -> None:
    database, recorder = DATABASES["shared"](), make(LEASE_SECONDS)
    database.open(JumpingClock()).register(WorkerRecord("h1.1", "h1", 1))

    recorder.note_search(WorkerSearch(frozenset(), None))
    recorder.check(database.read_contents())

    assert recorder.violations == []


@pytest.mark.parametrize(
    ("seconds", "age", "is_found"),
    [
        pytest.param(LEASE_SECONDS, LEASE_SECONDS - 1, True, id="within a lease after an outage"),
        pytest.param(LEASE_SECONDS, LEASE_SECONDS, False, id="a lease after it"),
        pytest.param(LEASE_SECONDS - 1, 1, False, id="an outage that made no heartbeat too old"),
    ],
)
def test_who_is_buried_for_an_outage_of_the_store_is_found(seconds: float, age: float, is_found: bool) -> None:
    recorder, ended = make(LEASE_SECONDS), START + timedelta(seconds=seconds)
    recorder.note_outage(Outage(START, ended))

    recorder.promise_7_an_outage_expires_no_worker("h1.1", START, ended + timedelta(seconds=age))

    assert bool(recorder.violations) == is_found


def test_who_was_heard_of_after_an_outage_is_not_buried_for_it() -> None:
    recorder, ended = make(LEASE_SECONDS), START + timedelta(seconds=2 * LEASE_SECONDS)
    recorder.note_outage(Outage(START, ended))

    second = timedelta(seconds=1)
    recorder.promise_7_an_outage_expires_no_worker("h1.1", ended + second, ended + 2 * second)

    assert recorder.violations == []


def test_a_world_says_what_its_witness_has_found() -> None:
    cluster = SimulatedCluster(7, FaultBudget(store="memory"))
    cluster.create(workflow(step("a")))
    cluster.recorder.violations.append("promise 4: seen")

    with pytest.raises(AssertionError, match="promise 4: seen"):
        cluster.check()
