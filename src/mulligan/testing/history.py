"""The history builder: small workflows and their runs, for tests.

    run = History(workflow(step("fetch", retry(2)), step("load", needs=["fetch"])))
    run.start().fail("fetch", exit_code=11).ok("fetch").ok("load")
    assert run.status == "completed"

Real core, fake edges: a history passes reports to `turn` as an engine would, records the log, the queued tasks and the
timers, and moves its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from mulligan.core.effects import effects as fx
from mulligan.core.evolve.revision import plain_from_json
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import shell_command
from mulligan.core.model.clusters.scheduler_job import JobEnd
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import (
    Action,
    Backoff,
    Command,
    Edge,
    Expression,
    Handler,
    Need,
    Rule,
    Step,
    Template,
    Workflow,
    encode,
    version,
)
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.state import Place, State
from mulligan.core.turn import report_before, turn

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Answers:
    """An evaluator with prepared answers: by the text of the expression, otherwise True."""

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        self.answers = dict(answers or {})

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        answer = self.answers.get(expression.source, True)
        answer = answer(names) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def keep(self, name: str, value: Any) -> Any:
        return value

    def condition(self, expression: Expression, names: Mapping[str, Any]) -> bool:
        return bool(self.evaluate(expression, names))

    def render(self, template: Template, names: Mapping[str, Any]) -> Any:
        values = [p if isinstance(p, str) else self.evaluate(p, names) for p in template.parts]
        return values[0] if len(values) == 1 else "".join(map(str, values))


# -- parts of a workflow ---------------------------------------------------------------------------------------------


def shell(text: str = "true") -> Action:
    return shell_command(text)


def command(text: str = "true", **fields: Any) -> Command:
    return Command(action=shell(text), **fields)


def expression(source: str, *reads: str) -> Expression:
    return Expression(source, reads)


def retry(max_retries: int, *, delay: float = 0.0, **fields: Any) -> tuple[Rule, ...]:
    """Return a policy with one catch-all rule."""
    return (Rule(any=True, max_retries=max_retries, backoff=Backoff(delay=delay), **fields),)


def handler(*texts: str, **fields: Any) -> Handler:
    return Handler(tuple(command(text) for text in texts or ("fix",)), **fields)


def step(name: str, *, needs: Any = (), next: Any = (), when: str | None = None, **fields: Any) -> Step:
    """Return a shell step. `needs` are names or `Need`s, `next` are names or `Edge`s."""
    if "map" not in fields:
        fields.setdefault("action", shell(name))
    return Step(
        name=name,
        needs=tuple(n if isinstance(n, Need) else Need(n) for n in needs),
        edges=tuple(_edge(i, to) for i, to in enumerate(next)),
        when=None if when is None else Expression(when, ("inputs",)),
        **fields,
    )


def _edge(index: int, to: Any) -> Edge:
    if isinstance(to, str):
        return Edge(to, index)
    return Edge(**{**{f: getattr(to, f) for f in to.__struct_fields__}, "index": index})


def edge(to: str, on: str = "success", **fields: Any) -> Edge:
    """Return an edge; the step that contains it sets its index."""
    if isinstance(fields.get("when"), str):
        fields["when"] = Expression(fields["when"], ("output",))
    return Edge(to, 0, on, **fields)  # type: ignore[arg-type]


def workflow(*steps: Step, end: Step | None = None, **fields: Any) -> Workflow:
    return Workflow(name="test", steps=steps, end=end or Step(name="end"), **fields)


# -- a run -----------------------------------------------------------------------------------------------------------


class History:
    """One run in memory: what was reported, what followed, what is queued and what is due."""

    def __init__(self, definition: Workflow, answers: Mapping[str, Any] | None = None, evaluator: Any = None) -> None:
        self.state = State(definition)
        self.evaluator = evaluator or Answers(answers)
        self.clock = T0
        self.log: list[e.Entry] = []
        self.last: list[e.Entry] = []
        self.tasks: dict[str, int] = {}
        self.timers: list[fx.SetTimer] = []
        self.effects: list[fx.Effect] = []
        self.starts: list[int] = []

    # -- reports -----------------------------------------------------------------------------------------------------

    def report(self, report: r.Report) -> Self:
        """Pass one report to the core and process what follows, including the other first steps of a large run."""
        self.report_once(report)
        while self.starts:
            self.report_once(r.StartsDue(self.clock, self.starts.pop(0)))
        return self

    def report_once(self, report: r.Report) -> Self:
        """Take one turn only: the pieces of first steps that it leaves are in `starts`.

        If the time of the run is up, it is stopped in a turn before that.
        """
        if (first := report_before(self.state, report)) is not None and first != report:
            self.report_once(first)
        self.last = turn(self.state, report, self.evaluator)
        self.state.commit()
        self.log.extend(self.last)
        for entry in self.last:
            if entry.seq <= self.state.run.forked_at:
                # It happened in the run that was forked.
                continue
            for effect in fx.effects(self.state, entry.fact):
                self._take_up(effect)
        return self

    def _take_up(self, effect: fx.Effect) -> None:
        self.effects.append(effect)
        if isinstance(effect, fx.QueueTask):
            self.tasks[effect.place] = effect.attempt
        elif isinstance(effect, fx.StopTask) and self.tasks.get(effect.place) == effect.attempt:
            place = self.state.places.get(effect.place)
            is_held = place is not None and place.status == "ready" and is_on_hold(self.state, place)
            if place is None or is_held or place.status not in ("ready", "running"):
                del self.tasks[effect.place]
        elif isinstance(effect, fx.SetTimer):
            self.timers.append(effect)
        elif isinstance(effect, fx.EnterMore):
            self.starts.append(effect.begin)

    def start(self, inputs: Mapping[str, Any] | None = None, **fields: Any) -> Self:
        return self.report(r.RunRequested(self.clock, inputs=dict(inputs or {}), **{"run_id": 1, **fields}))

    def started(self, key: str, worker: str = "w1", host: str = "h1") -> Self:
        return self.report(r.TaskStarted(self.clock, key, self._attempt(key), worker=worker, host=host))

    def ok(
        self, *keys: str, output: Any = None, usage: dict[str, Any] | None = None, data: dict[str, Any] | None = None
    ) -> Self:
        """Let these tasks succeed, one after the other. `usage`: what each reports, such as `{"tokens": 900}`.

        `data`: the data of the run that each sets.
        """
        for key in keys:
            attempt = self._attempt(key)
            self.tasks.pop(key, None)
            self.report(r.TaskEnded(self.clock, key, attempt, output=output, usage=usage or {}, data=data or {}))
        return self

    def fail(self, key: str, exit_code: int = 1, *, usage: dict[str, Any] | None = None, **outcome: Any) -> Self:
        attempt = self._attempt(key)
        self.tasks.pop(key, None)
        return self.report(r.TaskEnded(self.clock, key, attempt, Outcome(exit_code, **outcome), usage=usage or {}))

    def lose(self, key: str, job: JobEnd | None = None) -> Self:
        attempt = self._attempt(key)
        self.tasks.pop(key, None)
        return self.report(r.LeaseExpired(self.clock, key, attempt, "w1", job))

    def interrupt(self, key: str, ran_seconds: float | None = None, life_seconds: float | None = None) -> Self:
        """Interrupt this task, as the operator's Ctrl-C does; or, with seconds, the end of a worker's time."""
        attempt = self._attempt(key)
        self.tasks.pop(key, None)
        return self.report(r.TaskInterrupted(self.clock, key, attempt, ran_seconds, life_seconds))

    def cancel(self, **fields: Any) -> Self:
        return self.report(r.CancelRequested(self.clock, by="someone", **fields))

    def pause(self) -> Self:
        return self.report(r.PauseRequested(self.clock, by="someone"))

    def resume(self, steps: int = 0) -> Self:
        return self.report(r.ResumeRequested(self.clock, by="someone", steps=steps))

    def pause_step(self, step: str, **fields: Any) -> Self:
        return self.report(r.PauseRequested(self.clock, step=step, **{"by": "someone", **fields}))

    def resume_step(self, step: str, **fields: Any) -> Self:
        return self.report(r.ResumeRequested(self.clock, step=step, **{"by": "someone", **fields}))

    def retry(self, from_step: str = "", **fields: Any) -> Self:
        return self.report(r.RetryRequested(self.clock, by="someone", reason="again", from_step=from_step, **fields))

    def retry_with(self, definition: Workflow, from_step: str = "", *, force: bool = False, **fields: Any) -> Self:
        """Start another round under a corrected definition; fields are those of `Revised`."""
        data = encode(definition)
        inputs = fields.pop("inputs", self.state.run.inputs)
        revised = r.Revised(version(data), plain_from_json(data), inputs, **fields)
        return self.retry(from_step, revised=revised, force=force)

    def classify(self, name: str, verdict: str, **fields: Any) -> Self:
        fields.setdefault("reason", "seen before")
        return self.report(r.Classified(self.clock, name, verdict, "someone", **fields))  # type: ignore[arg-type]

    def approve(self, key: str, is_approved: bool = True, reason: str = "fine") -> Self:
        return self.report(r.ApprovalGiven(self.clock, key, is_approved, by="someone", reason=reason))

    def send(self, name: str, value: Any = None, **fields: Any) -> Self:
        """Send an event to the run."""
        return self.report(r.EventSent(self.clock, name, value, "someone", **fields))

    def child_ended(self, key: str, status: str = "completed", **fields: Any) -> Self:
        """The child run of a place has ended: the first is run 2. In the round that the attempt asked for."""
        place, attempt = self.state.places.get(key), self._attempt(key)
        if place is not None and place.last_child is not None and place.last_child.attempt == attempt:
            fields = {"child_run_id": place.last_child.run_id, "round": place.last_child.round, **fields}
        called = [one for one in self.effects if isinstance(one, fx.StartChild)]
        number = called.index(fx.StartChild(key, attempt)) + 2 if fx.StartChild(key, attempt) in called else 2
        report = r.ChildEnded(self.clock, key, attempt, status=status, **{"child_run_id": number, **fields})  # type: ignore[arg-type]
        return self.report(report)

    def wait(self, seconds: float) -> Self:
        """Let time pass: every timer that comes due fires at its time."""
        until = self.clock + timedelta(seconds=seconds)
        while True:
            due = [timer for timer in self.timers if timer.due <= until]
            if not due:
                break
            timer = min(due, key=lambda t: t.due)
            self.timers.remove(timer)
            self.clock = max(self.clock, timer.due)
            self.report(r.TimerFired(self.clock, timer.kind, timer.place, timer.number))
        self.clock = until
        return self

    def fire_all(self) -> Self:
        """Fire every timer that was ever set once more, long after its time."""
        self.clock += timedelta(days=365)
        for timer in [effect for effect in self.effects if isinstance(effect, fx.SetTimer)]:
            self.report(r.TimerFired(self.clock, timer.kind, timer.place, timer.number))
        return self

    def _attempt(self, key: str) -> int:
        place = self.state.places.get(key)
        if place is None:
            raise AssertionError(f"there is no place '{key}'; there are {sorted(self.state.places)}")
        return place.attempt

    # -- results -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Place:
        return self.state.places[key]

    @property
    def status(self) -> str:
        return self.state.run.status

    @property
    def statuses(self) -> dict[str, str]:
        """Return the statuses of the steps, without `end`."""
        return {place.key: place.status for place in self.state.steps()}

    @property
    def queued(self) -> list[str]:
        """Return the tasks that a worker could lease now."""
        return sorted(self.tasks)

    def facts(self, *kinds: type[e.Fact]) -> list[Any]:
        """Return the facts of the log that are of these kinds."""
        return [entry.fact for entry in self.log if not kinds or isinstance(entry.fact, kinds)]

    @property
    def passed(self) -> list[tuple[str, str]]:
        """Return the rungs that a failure passed, and why."""
        return [(fact.rung, fact.reason) for fact in self.facts(e.RungPassed)]

    @property
    def follows(self) -> list[e.Fact]:
        """Return the facts of the last turn."""
        return [entry.fact for entry in self.last]

    @property
    def ended(self) -> Any:
        """Return the terminal event of the last round, or None."""
        found = self.facts(e.RunCompleted, e.RunFailed, e.RunCancelled)
        return found[-1] if found and self.status in ("completed", "failed", "cancelled") else None
