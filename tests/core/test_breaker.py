"""Circuit breakers: which tasks may pass, which outcomes count, and invariants over random sequences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.deciding.classify import classify
from mulligan.core.deciding.workers.breaker import (
    CLOSED,
    Circuit,
    Guard,
    GuardedOutcome,
    Verdict,
    admission,
    breaker_verdict,
    count_outcome,
    max_running,
    open_circuit_outcome,
    set_limit,
    start_probe,
)
from mulligan.core.effects.tasks import make_task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import LeaseExpired, Report, TaskEnded, TaskInterrupted
from mulligan.core.model.workflow import Breaker
from mulligan.language import load_text
from mulligan.testing.history import History

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LATER = T0 + timedelta(seconds=61)

GUARD = Guard("llm", Breaker(failures=3, reset=60.0, ignore=("HTTP_4XX",)))
FAILING = Guard("llm", Breaker(failures=3, reset=60.0, when_open="fail"))


def after(*verdicts: Verdict, circuit: Circuit = CLOSED, token: int = 1, now: datetime = T0) -> Circuit:
    for verdict in verdicts:
        circuit = count_outcome(circuit, GuardedOutcome(token, GUARD, verdict), now)
    return circuit


OPEN = after("failure", "failure", "failure")
HALF_OPEN = start_probe(OPEN, 7)


# -- opening ---------------------------------------------------------------------------------------------------------


def test_so_many_failures_in_a_row_open_it_until_the_reset_is_over():
    assert after("failure", "failure") == Circuit(failures=2, max_running=1)
    assert Circuit("open", 3, T0 + timedelta(seconds=60)) == OPEN


def test_a_success_ends_the_row_and_what_tells_nothing_does_not():
    assert after("failure", "failure", "success", "failure") == Circuit(failures=1, max_running=2)
    assert after("failure", "neither", "failure", "neither", "failure") == OPEN


@pytest.mark.parametrize("verdict", ["success", "failure", "neither"])
def test_what_was_leased_before_it_opened_changes_nothing_any_more(verdict: Verdict):
    assert after(verdict, circuit=OPEN, token=6, now=LATER) == OPEN
    assert after(verdict, circuit=HALF_OPEN, token=6, now=LATER) == HALF_OPEN


# -- admission -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("circuit", "now", "is_probe_alive", "waiting", "failing"),
    [
        # closed, also after some failures
        (Circuit(failures=2), T0, False, "go", "go"),
        # open: until the very moment
        (OPEN, T0, False, "wait", "refuse"),
        (OPEN, T0 + timedelta(seconds=59.999999), False, "wait", "refuse"),
        (OPEN, T0 + timedelta(seconds=60), False, "probe", "probe"),
        # half open: the answer is near, so nobody is refused
        (HALF_OPEN, LATER, True, "wait", "wait"),
        # its probe was lost
        (HALF_OPEN, LATER, False, "probe", "probe"),
    ],
)
def test_who_may_pass(circuit: Circuit, now: datetime, is_probe_alive: bool, waiting: str, failing: str):
    assert admission(circuit, GUARD, now, is_probe_alive=is_probe_alive, running=0) == waiting
    assert admission(circuit, FAILING, now, is_probe_alive=is_probe_alive, running=0) == failing


@pytest.mark.parametrize(
    ("failures", "max_parallel", "limit"),
    [
        # healthy: as many as the workflow allows
        (0, None, None),
        (0, 2, 2),
        (0, 9, 9),
        # after a failure: as many as may still fail
        (1, None, 2),
        (2, None, 1),
        (1, 1, 1),
        (1, 9, 2),
        # counted by a workflow that allows more failures: one at a time, and never none
        (3, None, 1),
        (7, 9, 1),
    ],
)
def test_how_many_tasks_may_run_at_once_behind_a_closed_breaker(
    failures: int, max_parallel: int | None, limit: int | None
):
    circuit, allowed = Circuit(failures=failures), 1_000_000 if limit is None else limit
    guards = [
        Guard("llm", Breaker(failures=3, max_parallel=max_parallel, when_open=when_open))  # type: ignore[arg-type]
        for when_open in ("wait", "fail")
    ]

    for guard in guards:
        assert max_running(circuit, guard) == limit
        assert set_limit(circuit, guard) == Circuit(failures=failures, max_running=limit)
        assert admission(circuit, guard, T0, is_probe_alive=False, running=allowed - 1) == "go"
        # also who will not wait for an open one: the answer is near
        if limit is not None:
            assert admission(circuit, guard, T0, is_probe_alive=False, running=allowed) == "wait"


@pytest.mark.parametrize("circuit", [OPEN, HALF_OPEN])
def test_one_that_is_not_closed_has_no_limit(circuit: Circuit):
    exact = Guard("llm", Breaker(failures=3, max_parallel=3))

    assert set_limit(circuit, exact) == circuit
    assert start_probe(Circuit("open", 3, T0, max_running=2), 7).max_running is None


def test_a_task_that_will_not_wait_is_told_which_breaker_is_open_and_until_when():
    failure, warnings = classify(open_circuit_outcome(FAILING, T0 + timedelta(seconds=60, microseconds=5)))

    assert failure is not None and not warnings
    assert (failure.code, failure.retryable, failure.exit_code) == ("CIRCUIT_OPEN", False, None)
    assert failure.message == "breaker 'llm' is open until 2026-01-01 00:01:00 UTC"
    assert failure.details == {"breaker": "llm", "retry_at": "2026-01-01T00:01:00.000005+00:00"}


# -- the probe -------------------------------------------------------------------------------------------------------


def test_the_probes_success_closes_it_and_its_failure_opens_it_again():
    assert after("success", circuit=HALF_OPEN, token=7, now=LATER) == CLOSED
    assert after("failure", circuit=HALF_OPEN, token=7, now=LATER) == Circuit("open", 4, LATER + timedelta(seconds=60))


def test_a_probe_that_tells_nothing_lets_the_next_lease_be_the_probe():
    circuit = after("neither", circuit=HALF_OPEN, token=7, now=LATER)

    assert circuit == OPEN
    assert admission(circuit, GUARD, LATER, is_probe_alive=False, running=0) == "probe"


# -- what counts -----------------------------------------------------------------------------------------------------

ENDS: dict[str, tuple[Report, Verdict]] = {
    "exit 0": (TaskEnded(T0, "a", 1), "success"),
    "a warning alone": (TaskEnded(T0, "a", 1, Outcome(reported=({"code": "SLOW", "severity": "warning"},))), "success"),
    "exit 1": (TaskEnded(T0, "a", 1, Outcome(exit_code=1)), "failure"),
    "an error that it reports on exit 0": (TaskEnded(T0, "a", 1, Outcome(reported=({"code": "QUOTA"},))), "failure"),
    "its timeout": (TaskEnded(T0, "a", 1, Outcome(is_timed_out=True)), "failure"),
    "its timeout, ended by a signal": (TaskEnded(T0, "a", 1, Outcome(signal=15, is_timed_out=True)), "failure"),
    "the deadline of its visit": (
        TaskEnded(T0, "a", 1, Outcome(is_timed_out=True, is_past_deadline=True)),
        "neither",
    ),
    "an ignored code": (TaskEnded(T0, "a", 1, Outcome(code="HTTP_4XX")), "neither"),
    "an ignored code that it reports": (TaskEnded(T0, "a", 1, Outcome(reported=({"code": "HTTP_4XX"},))), "neither"),
    "no worker for it": (TaskEnded(T0, "a", 1, Outcome(code="NO_CAPACITY")), "neither"),
    "another breaker": (TaskEnded(T0, "a", 1, Outcome(code="CIRCUIT_OPEN")), "neither"),
    "cancelled": (TaskEnded(T0, "a", 1, Outcome(signal=15, is_stopped=True)), "neither"),
    "cancelled, and it ended well": (TaskEnded(T0, "a", 1, Outcome(is_stopped=True)), "neither"),
    "Ctrl-C": (TaskInterrupted(T0, "a", 1), "neither"),
    "its worker was lost": (LeaseExpired(T0, "a", 1), "neither"),
    # an engine's code in a step's mouth is not believed
    "it says that it was cancelled": (TaskEnded(T0, "a", 1, Outcome(reported=({"code": "CANCELLED"},))), "failure"),
}


@pytest.mark.parametrize(("report", "verdict"), ENDS.values(), ids=ENDS)
def test_what_the_end_of_a_task_says_about_what_is_guarded(report: Report, verdict: Verdict):
    assert breaker_verdict(report, GUARD) == verdict


# -- whatever happens ------------------------------------------------------------------------------------------------

VERDICTS = st.sampled_from(["success", "failure", "neither"])
# A lease is asked for, one that is held ends, one that is held is lost, time passes.
STEPS = st.lists(
    st.one_of(
        st.just(("lease",)),
        st.tuples(st.just("end"), st.integers(0, 5), VERDICTS),
        st.tuples(st.just("lose"), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.sampled_from([1, 30, 60, 600])),
    ),
    max_size=60,
)


class World:
    """One breaker and the leases behind it."""

    def __init__(self, guard: Guard) -> None:
        self.guard, self.circuit, self.now = guard, CLOSED, T0
        self.held: list[int] = []
        self.last_token = 0
        self.failed_in_a_row = 0

    def step(self, kind: str, *args: object) -> None:
        getattr(self, kind if kind != "pass" else "wait")(*args)

    def lease(self) -> None:
        is_alive = self.circuit.probe in self.held
        found = admission(self.circuit, self.guard, self.now, is_probe_alive=is_alive, running=len(self.held))
        if found not in ("go", "probe"):
            return
        failed = self.circuit.failures
        assert found == "probe" or not failed or len(self.held) < self.guard.rules.failures - failed, (
            "more than may fail"
        )
        assert found == "go" or not is_alive, "two probes at once"
        self.last_token += 1
        self.held.append(self.last_token)
        if found == "probe":
            self.circuit = start_probe(self.circuit, self.last_token)

    def end(self, index: int, verdict: Verdict) -> None:
        if index < len(self.held):
            was = self.circuit.status
            self.circuit = count_outcome(
                self.circuit, GuardedOutcome(self.held.pop(index), self.guard, verdict), self.now
            )
            if verdict != "neither":
                self.failed_in_a_row = self.failed_in_a_row + 1 if verdict == "failure" else 0
            if was == "closed" and self.circuit.status == "open":
                self.opened()

    def opened(self) -> None:
        if self.guard.rules.max_parallel is not None:
            assert self.failed_in_a_row == self.guard.rules.failures
            assert not self.held, "more requests are under way than may fail"

    def lose(self, index: int) -> None:
        if index < len(self.held):
            self.held.pop(index)

    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)


@settings(max_examples=examples(40, 100))
@given(steps=STEPS, failures=st.integers(1, 4), when_open=st.sampled_from(["wait", "fail"]), is_exact=st.booleans())
def test_one_probe_at_most_and_whoever_waits_passes_in_the_end(
    steps: list[tuple], failures: int, when_open: str, is_exact: bool
):
    """And if no more may run at once than may fail, nothing is under way when it opens, whatever has happened."""
    max_parallel = failures if is_exact else None
    rules = Breaker(failures=failures, reset=60.0, when_open=when_open, max_parallel=max_parallel)  # type: ignore[arg-type]
    world = World(Guard("llm", rules))

    for step in steps:
        world.step(*step)
        circuit = world.circuit
        assert (circuit.status == "closed") == (circuit.retry_at is None)
        assert (circuit.status == "half_open") == (circuit.probe is not None)
        assert circuit.status != "closed" or circuit.failures < failures
        assert not is_exact or circuit.status != "closed" or len(world.held) + circuit.failures <= failures

    # All leases end one way or another, and the reset is over: somebody passes, and when that goes well, everybody.
    world.held.clear()
    world.wait(60)
    world.lease()
    assert world.held
    world.end(0, "success")
    assert world.circuit == Circuit(max_running=max_parallel)


# -- tasks -----------------------------------------------------------------------------------------------------------


def test_a_task_carries_its_breaker_with_what_the_workflow_says_of_it():
    text = (
        "breakers: {llm: {failures: 2, reset: 5s}}\nsteps: [{step: a, shell: ask, breaker: llm}, {step: b, shell: b}]"
    )
    history = History(load_text(text)).start()

    assert make_task(history.state, "a").guard == Guard("llm", Breaker(failures=2, reset=5.0))
    assert make_task(history.state, "b").guard is None
