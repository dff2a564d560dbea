"""A state machine over the core: whatever workers, timers and operators do, in whatever order, the promises hold.

The simulator searches wider, over random workflows; this one knows one workflow with everything in it, and
Hypothesis shrinks what it finds to the fewest moves.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.nightly import examples

from mulligan.core.model.clusters.scheduler_job import JobEnd, JobEnding, WorkerJob
from mulligan.core.model.workflow import Action, Backoff, Handler, Map, Need, Rule, Step, Triage, Workflow
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import Refused, UndoFailed
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow
from proof.invariants.run_invariants import check

EXIT_CODES = st.sampled_from([1, 11, 42])


def everything() -> Workflow:
    """Every rung, every strategy, a loop, a map, joins, undo and an `end` that can fail: small, and all at once."""
    script = Rule(exit_codes=(11,), max_retries=2, recovery_script=command("clean"), backoff=Backoff(delay=5))
    nested = Handler((command("fix", rules=retry(1), on_failure=handler("again")),), rerun=1, timeout=30)
    cleanup = Handler((command("sweep"),), strategy="cleanup")
    items = Map(over=expression("list"), max_parallel=2)
    asking = Action("approve", {"message": "?", "timeout": 120})
    return workflow(
        step("fetch", rules=(script, *retry(1)), undo=command("unfetch")),
        step("build", needs=["fetch"], on_failure=nested, next=[edge("repair", "failure", then="rerun"), edge("pack")]),
        step("repair", triage=Triage(timeout=60, default="retry")),
        step("pack", on_failure=cleanup, next=[edge("review"), edge("page", "failure", handles=False)]),
        step("review", next=[edge("fetch", when="again"), edge("ship", when="enough")], max_visits=3),
        step("each", needs=["fetch"], map=items, do=(command("one"), command("two"))),
        step("ask", needs=["fetch"], action=asking, continue_on_error=True),
        step("nap", needs=["ask"], action=Action("wait", {"seconds": 10}), undo=command("wake")),
        step("ship", join="first", validator=command("smoke"), on_success=(command("tell"),)),
        step("page", join="each"),
        step("judge", needs=[Need("each", "always")]),
        end=Step(name="end", action=Action("shell", {"text": "report"}), rules=retry(1)),
        timeout=3600,
    )


class AnyOrder(RuleBasedStateMachine):
    """Moves that the world can make; the core must keep its promises after each."""

    def __init__(self) -> None:
        super().__init__()
        answers = {"list": ["x", "y", "z"], "again": self._goes_again, "enough": lambda names: not self.goes_again}
        self.goes_again = True
        self.run = History(everything(), answers).start()

    def _goes_again(self, names: object) -> bool:
        self.goes_again = not self.goes_again
        return self.goes_again

    def has_tasks(self) -> bool:
        return bool(self.run.tasks) and self.run.status == "running"

    def has_ended(self) -> bool:
        return self.run.status in RUN_ENDED

    def _pick(self, number: int) -> str:
        return self.run.queued[number % len(self.run.queued)]

    @precondition(has_tasks)
    @rule(number=st.integers(0, 9))
    def a_task_ends_well(self, number: int) -> None:
        self.run.ok(self._pick(number), output={"n": number})

    @precondition(has_tasks)
    @rule(number=st.integers(0, 9), exit_code=EXIT_CODES)
    def a_task_fails(self, number: int, exit_code: int) -> None:
        self.run.fail(self._pick(number), exit_code)

    @precondition(has_tasks)
    @rule(number=st.integers(0, 9))
    def a_task_starts(self, number: int) -> None:
        self.run.started(self._pick(number))

    @precondition(has_tasks)
    @rule(number=st.integers(0, 9))
    def a_worker_is_lost(self, number: int) -> None:
        self.run.lose(self._pick(number))

    @precondition(has_tasks)
    @rule(number=st.integers(0, 9), ending=st.sampled_from(["free", "time", "memory"]), is_one_task=st.booleans())
    def the_job_of_a_worker_ends(self, number: int, ending: JobEnding, is_one_task: bool) -> None:
        job = WorkerJob("17", "n3", is_one_task=is_one_task, life_seconds=60.0)
        self.run.lose(self._pick(number), JobEnd(job, ending.upper(), ending))

    @precondition(has_tasks)
    @rule(number=st.integers(0, 9), ran=st.sampled_from([0.0, 30.0, 60.0]))
    def the_time_of_a_worker_is_over(self, number: int, ran: float) -> None:
        self.run.interrupt(self._pick(number), ran, 60.0)

    @rule(seconds=st.sampled_from([1, 10, 60, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.run.wait(seconds)

    @precondition(lambda self: not self.has_ended())
    @rule(now=st.booleans())
    def somebody_cancels(self, now: bool) -> None:
        self.run.cancel(now=now)

    @precondition(lambda self: self.run.status == "running" and self.run.state.run.stop is None)
    @rule()
    def somebody_pauses(self) -> None:
        self.run.pause()

    @precondition(lambda self: self.run.status == "paused")
    @rule()
    def somebody_resumes(self) -> None:
        self.run.resume()

    @precondition(lambda self: self.run["repair"].status == "pending_failed" and self.run.status != "paused")
    @rule(verdict=st.sampled_from(["retry", "fail"]))
    def somebody_classifies(self, verdict: str) -> None:
        self.run.classify("repair", verdict)

    @rule(is_approved=st.booleans())
    def somebody_answers(self, is_approved: bool) -> None:
        try:
            self.run.approve("ask", is_approved)
        except Refused:
            assert self.run["ask"].status != "running" or self.has_ended()

    @precondition(lambda self: self.run.status in ("failed", "cancelled") and self.run.state.run.round < 3)
    @rule(keep_completed=st.booleans(), force=st.booleans())
    def somebody_retries(self, keep_completed: bool, force: bool) -> None:
        try:
            self.run.retry(keep_completed=keep_completed, force=force)
        except UndoFailed:
            assert not force and any(step.has_failed_undo for step in self.run.state.steps())

    @precondition(lambda self: not self.has_ended())
    @rule()
    def everybody_does_their_part(self) -> None:
        """To the end of the round: what a later round keeps shows only there."""
        for _ in range(200):
            if not self.has_ended():
                self._move_on()

    @invariant()
    def the_promises_hold(self) -> None:
        check(self.run.log, self.run.state)

    def teardown(self) -> None:
        """Left to itself, with everybody doing their part, the run ends."""
        for _ in range(200):
            if self.has_ended():
                break
            self._move_on()
        assert self.has_ended(), self.run.statuses
        check(self.run.log, self.run.state)

    def _move_on(self) -> None:
        if self.run.status == "paused":
            self.run.resume()
        elif self.run["repair"].status == "pending_failed":
            self.run.classify("repair", "fail")
        elif self.run.queued:
            self.run.ok(self.run.queued[0])
        else:
            self.run.wait(200)


AnyOrder.TestCase.settings = settings(
    max_examples=examples(15, 40), stateful_step_count=40, deadline=None, derandomize=True
)
TestAnyOrder = AnyOrder.TestCase
