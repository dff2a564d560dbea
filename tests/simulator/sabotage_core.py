"""Deliberate defects in the core."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mulligan.core import ordinary
from mulligan.core.deciding import (
    admit,
    converge,
    end_status,
    fact_dispatch,
    flow,
    ladder,
    lifecycle,
    stopping,
)
from mulligan.core.deciding.agents import triage_agent
from mulligan.core.deciding.rounds import child_rounds, fork, rounds
from mulligan.core.deciding.workers import breaker
from mulligan.core.effects import effects
from mulligan.core.evolve import evolve_fork
from mulligan.core.model import events as e
from mulligan.core.state import scope, verdict
from mulligan.engine import run_driver
from mulligan.testing.memory import memory_store

from .sabotage import defect


@defect(ladder, "_retry_refusal")
def _(real: Any) -> Any:
    """a rule grants more retries than it has"""
    return lambda *about: ""


@defect(lifecycle, "budget_refusal")
def _(real: Any) -> Any:
    """an agent is called though its budget is spent"""
    return lambda *about, **more: None


@defect(admit, "_dropped_output")
def _(real: Any) -> Any:
    """an output that is too large to be kept is null"""
    return lambda *about: None


@defect(verdict, "dropped_outputs")
def _(real: Any) -> Any:
    """a run that lacks an output completes as if nothing had happened"""
    return lambda state: iter(())


@defect(ladder, "retry")
def _(real: Any) -> Any:
    """a retry is reserved twice"""

    def retry(now: Any, place: Any, failure: Any) -> Any:
        granted = False
        for fact in (facts := real(now, place, failure)):
            yield fact
            if isinstance(fact, e.RetryScheduled) and not granted:
                granted = True
                yield fact
        del facts
        return granted

    return retry


@defect(ladder, "start_due_retry")
def _(real: Any) -> Any:
    """a retry starts when its script has ended, whatever its delay"""

    def proceed(now: Any, place: Any) -> Any:
        if place.status == "backing_off":
            yield from lifecycle.schedule(now, place, "retry")

    return proceed


@defect(fact_dispatch, "after_script")
def _(real: Any) -> Any:
    """a stopped run goes on with a retry whose script has ended"""

    def after_script(now: Any, place: Any, fact: e.Fact) -> Any:
        yield from lifecycle.schedule(now, place, "retry")

    return after_script


@defect(end_status, "verdict")
def _(real: Any) -> Any:
    """a run with a failure that nobody handled has completed"""
    return lambda state: "completed" if real(state) == "failed" else real(state)


@defect(flow, "readiness")
def _(real: Any) -> Any:
    """a step that can never start waits for ever"""

    def readiness(state: Any, place: Any) -> str:
        found = str(real(state, place))
        return found if found == "enter" else ""

    return readiness


@defect(effects.RULES, e.RetryScheduled)
def _(real: Any) -> Any:
    """a reserved retry has no timer"""
    return lambda state, fact: ()


@defect(scope, "_includes_secrets")
def _(real: Any) -> Any:
    """a secret is written into what a task is told"""
    return lambda reads: False


@defect(breaker, "_count_closed")
def _(real: Any) -> Any:
    """a breaker that opens already waits for a probe"""

    def count_closed(circuit: Any, counted: Any, now: Any) -> Any:
        found = real(circuit, counted, now)
        return replace(found, probe=counted.token) if found.status == "open" else found

    return count_closed


@defect(ladder, "delay_seconds")
def _(real: Any) -> Any:
    """a retry does not wait"""
    return lambda backoff, number, seed, details: 0.0


@defect(ladder, "_handler_refusal")
def _(real: Any) -> Any:
    """a handler runs as often as there are failures"""
    return lambda *about: ""


@defect(stopping, "stop_place")
def _(real: Any) -> Any:
    """a run that stops keeps the retries that it has reserved"""

    def stop_place(now: Any, place: Any) -> Any:
        if place.status != "backing_off" or place.child:
            yield from real(now, place)

    return stop_place


@defect(fork, "_KEEPABLE")
def _(real: tuple[str, ...]) -> tuple[str, ...]:
    """a fork keeps what failed"""
    return (*real, "failed")


@defect(rounds, "dependents")
def _(real: Any) -> Any:
    """a new round keeps a result of which something that it depends on runs again"""
    return lambda *about: {}


@defect(fork, "dependents")
def _(real: Any) -> Any:
    """a fork keeps a result of which something that it depends on runs again"""
    return lambda *about: {}


@defect(converge, "_next_undo")
def _(real: Any) -> Any:
    """what was done first is undone first"""
    return lambda state: state.undoables[0] if real(state) is not None else None


@defect(lifecycle, "status_problem")
def _(real: Any) -> Any:
    """end returns a status that no run has, and completes"""
    return lambda output: ""


@defect(lifecycle, "is_beyond_limit")
def _(real: Any) -> Any:
    """a step runs in the visit after its last"""
    return lambda state, place: False


@defect(effects, "held_places")
def _(real: Any) -> Any:
    """a step that is resumed is not queued again"""
    return lambda state, step: iter(())


@defect(triage_agent, "judge_suggestion")
def _(real: Any) -> Any:
    """a triager decides whatever it likes"""

    def judge(agent: Any, decided: int, answer: Any) -> Any:
        judged = real(agent, decided, answer)
        return judged if judged.answer is None else replace(judged, why_not="")

    return judge


# -- child runs ------------------------------------------------------------------------------------------------------


@defect(lifecycle, "child_to_continue")
def _(real: Any) -> Any:
    """a child run that is retried starts from nothing"""
    return lambda state, place: None


@defect(child_rounds, "_has_newer_source")
def _(real: Any) -> Any:
    """a child run is continued though a step before it has run again"""
    return lambda state, place, last: False


@defect(run_driver, "child_end")
def _(real: Any) -> Any:
    """a further round of a child run ends for the attempt that called the first one"""
    return lambda state, place, attempt, at: replace(real(state, place, attempt, at), attempt=attempt)


@defect(run_driver._CARRY_OUT, effects.ContinueChild)
def _(real: Any) -> Any:
    """a child run is not asked for the round that its caller waits for"""
    return lambda driver, pending, effect, now: None


@defect(admit, "_run_reopened")
def _(real: Any) -> Any:
    """a round of a child run does not say who asked for it"""
    return lambda *about: replace(real(*about), attempt=0)


@defect(effects.RULES, e.AttemptStopping)
def _(real: Any) -> Any:
    """a child run that is continued is not stopped with its caller"""

    def stopping(state: Any, fact: Any) -> Any:
        for effect in real(state, fact):
            yield replace(effect, run_id=0) if isinstance(effect, effects.StopChild) else effect

    return stopping


@defect(effects, "_continued_children")
def _(real: Any) -> Any:
    """a pause does not reach a child run that has not opened its round yet"""
    return lambda state: ()


@defect(evolve_fork, "_take_over")
def _(real: Any) -> Any:
    """a fork continues a child run of the run that it was forked from"""

    def take_over(place: Any, run_id: int, passed: Any) -> None:
        last = place.last_child
        real(place, run_id, passed)
        place.last_child = last

    return take_over


@defect(rounds, "refuse_failed_undos")
def _(real: Any) -> Any:
    """a round runs again unasked what could not be undone"""
    return lambda *about: None


@defect(ladder, "undo_failed_in_child")
def _(real: Any) -> Any:
    """a child run is tried again although it could not undo what it did"""
    return lambda place, failure: False


@defect(run_driver, "report_before")
def _(real: Any) -> Any:
    """what came due before the time of a run was up still starts after it"""
    return lambda state, report: None


@defect(run_driver.RunDriver, "claim_tasks")
def _(real: Any) -> Any:
    """who takes a run up starts what was queued, although the time of the run is up"""

    def claim_tasks(self: Any, now: Any) -> Any:
        due, self.state.run.due = self.state.run.due, None
        try:
            return real(self, now)
        finally:
            self.state.run.due = due

    return claim_tasks


@defect(memory_store, "is_run_due")
def _(real: Any) -> Any:
    """a task is handed out although the time of its run is up"""
    return lambda task, now: False


@defect(fork, "asked_again_in_fork")
def _(real: Any) -> Any:
    """a fork keeps an approval that was given for other inputs"""
    return lambda *about: {}


@defect(run_driver, "check_report")
def _(real: Any) -> Any:
    """a run takes up whatever it is asked for"""
    return lambda report: None


@defect(ordinary, "_wake_all")
def _(real: Any) -> Any:
    """an ordinary end leaves the steps behind the first that is not ordinary as they are"""
    return lambda now, names: real(now, names[:1])


@defect(ordinary, "count_member")
def _(real: Any) -> Any:
    """an ordinary end does not count for the groups that its step is in"""
    return lambda state, barrier, met: None


@defect(ordinary, "_succeeded")
def _(real: Any) -> Any:
    """an ordinary end forgets what its attempt has given"""
    return lambda report: replace(real(report), output=None)
