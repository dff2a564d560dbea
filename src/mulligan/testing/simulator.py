"""The simulator: one random history of one random workflow, from one seed, with everything that can go wrong.

    Simulation(seed=42).run()      # raises AssertionError with the promise that was broken

Virtual time, fake workers, a store that fails, engines that die. A history has a wild part, in which anything happens
at any moment, and a tame one, in which everybody does their duty and the run must end. After every event the promises
are asked. All chance comes from the seed: the same seed gives the same log, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from ..core import reports as r
from ..core.classify import Outcome
from ..core.codec import encode_log
from ..core.events import Entry, Kept
from ..core.failure import failure
from ..core.fork import kept_results
from ..core.state import Place
from ..core.transitions import RUN_ENDED
from ..core.workflow import Workflow
from ..errors import StaleLease
from ..ports import FAULT_POINTS, fault
from .clock import JumpingClock
from .faults import Crash, Faults, faults
from .liveness import Outside
from .loop import Engine
from .promises import Promises, promise_9_no_secret_is_told
from .seen import story
from .store import STORE_FAULTS, Lease, MemoryStore
from .trouble import ALL_TROUBLE, Trouble
from .workflows import SECRET, Dice, random_workflow

RUN_ID = 1
EVENTS_MAX = 20_000
ROUNDS_MAX = 3
FORKS = 0.08
PLAGUES = 0.1

# What may happen in the wild part, and how often; of those that are marked a history has only some.
_ALWAYS = {"turn": 40, "lease": 25, "end_task": 25, "pass_time": 10, "child_ends": 6, "deliver": 4, "decide": 4}
_SOMETIMES = {
    "lose_worker": 4,
    "interrupt": 2,
    "repeat_report": 8,
    "forge_report": 3,
    "fire_early": 4,
    "fire_again": 3,
    "cancel": 1,
    "cancel_now": 1,
    "pause": 2,
    "resume": 4,
    "ask_nonsense": 2,
    "store_fault": 4,
    "crash": 3,
    "wrong_clock": 4,
}


class Simulation:
    """One history. Everything that happened is in `store` and `log` afterwards."""

    store_kind = "memory"
    engines_max = 2

    def __init__(
        self,
        seed: object,
        workflow: Workflow | None = None,
        *,
        forks: bool = True,
        trouble: Trouble = ALL_TROUBLE,
    ) -> None:
        self.seed = seed
        self.allowed = trouble
        self.moves = 0
        self.forks = forks
        self.rng = Random(f"history {seed}")
        self.workflow = workflow or random_workflow(Random(f"workflow {seed}"))
        self.clock = JumpingClock()
        self.store = MemoryStore()
        self.store.create(RUN_ID, self.workflow)
        self.row = self.store.row(RUN_ID)
        dice = Dice(seed)
        self.engines = [Engine(name, RUN_ID, self.store, self.clock, dice) for name in ("one", "two")]
        # From dice of its own: the histories of the other seeds stay what they are.
        starts_at_once = Random(f"starts {seed}").choice((1, 2, 1000, 1000))
        for engine in self.engines:
            engine.state.graph.starts_at_once = starts_at_once
        self.promises = Promises(self.workflow)
        self.happened: Counter[str] = Counter()
        self.told: list[r.Report] = []
        self.mail: list[r.Report] = []
        self.lost: set[int] = set()
        self.skew_seconds = 0.0
        self.trouble = self.rng.choice((0.1, 0.3, 0.6))
        self.patience = self.rng.randint(0, 2)
        self.points = Faults()

    # -- the history -------------------------------------------------------------------------------------------------

    def run(self) -> Simulation:
        kept = self._kept()
        with faults() as self.points:
            self._tell(r.RunRequested(self.clock.now(), RUN_ID, {"target": "staging"}, by="someone", kept=kept))
            self._wild()
            self._tame()
            while self._wants_another_round():
                self._tell(self._another_round())
                self._wild()
                self._tame()
            self._haunt()
        self.promises.over(self.engines[0].state, self.outside())
        promise_9_no_secret_is_told(self.row.log, SECRET)
        return self

    def _kept(self) -> tuple[Kept, ...]:
        """Now and then the run is a fork: an older history of the same workflow comes first."""
        if not self.forks or self.rng.random() >= FORKS:
            return ()
        self.happened["fork"] += 1
        older = type(self)(f"{self.seed} before", self.workflow, forks=False).run()
        names = [step.name for step in self.workflow.steps]
        return kept_results(older.engines[0].state, self.promises.seen.graph, self.rng.choice(names))

    @property
    def status(self) -> str:
        return self.row.status

    def log_bytes(self) -> bytes:
        """The log as text, to compare histories by."""
        return encode_log(self.row.log)

    def logs(self) -> list[list[Entry]]:
        return [self.row.log]

    def outside(self) -> Outside:
        timers = {key: timer.due for key, timer in self.row.timers.items()}
        return Outside(self.row.tasks.keys(), self.row.children.keys(), timers)

    def _wild(self) -> None:
        chosen = {**_ALWAYS, **{name: w for name, w in _SOMETIMES.items() if self.rng.random() < 0.4}}
        if self.rng.random() < PLAGUES:
            chosen["lose_worker"] = 40
        names, weights = list(chosen), list(chosen.values())
        for _ in range(self.rng.choice((5, 40, 120, 250))):
            if self.status in RUN_ENDED and not self.row.inbox:
                break
            if self.moves == self.allowed.moves_max:
                break
            self.moves += 1
            name = self.rng.choices(names, weights)[0]
            if name not in self.allowed.without:
                self._do(name)

    def _do(self, name: str) -> None:
        move: Callable[[], object] = getattr(self, f"_{name}")
        if move() is not False:
            self.happened[name] += 1

    def _tame(self) -> None:
        """Everybody does their duty, and the run must end."""
        self.points.disarm()
        self.store.faults.clear()
        self.skew_seconds = 0.0
        while True:
            self._answer_all()
            if self.status in RUN_ENDED:
                return
            if len(self.row.log) > EVENTS_MAX:
                raise AssertionError(f"promise 10: the run has not ended after {EVENTS_MAX} events")
            if not (self._resume() or self._work() or self._child_ends() or self._decide() or self._next_timer()):
                raise AssertionError(f"promise 10: nobody has anything to do, and the run is {self.status}")

    def _answer_all(self) -> None:
        while self.mail:
            self._deliver()
        while self.row.inbox:
            self._turn()

    def _wants_another_round(self) -> bool:
        is_open = self.status != "completed" or bool(self._maps())
        return self.promises.seen.round < ROUNDS_MAX and is_open and self.rng.random() < 0.5

    def _another_round(self) -> r.RetryRequested:
        """For all that was not done; now and then for some items of a map, which is all that a completed run allows."""
        maps, adjust = self._maps(), self.rng.random() < 0.3
        if not maps or (self.status != "completed" and self.rng.random() < 0.6):
            return r.RetryRequested(self.clock.now(), "someone", "again", self._some_step(), adjust=adjust)
        self.happened["items"] += 1
        place = self.rng.choice(maps)
        total = len(place.items.values) if place.items else 0
        items = tuple(self.rng.sample(range(total), self.rng.randint(1, total)))
        return r.RetryRequested(self.clock.now(), "someone", "again", place.key, items, adjust)

    def _maps(self) -> list[Place]:
        return [place for place in self._current().state.steps() if place.items is not None and place.items.values]

    def _haunt(self) -> None:
        """The run is over; what was still on its way arrives, and changes nothing."""
        before = self.promises.seen.round
        for _ in range(3):
            self._repeat_report()
            self._ask_nonsense()
        while self.row.timers or self.row.tasks or self.row.children:
            if not (self._work() or self._child_ends()):
                self._next_timer()
        self._answer_all()
        if self.promises.seen.round != before:
            raise AssertionError("promise 1: a run that was over went on")
        self.engines[0].catch_up()

    # -- the engine --------------------------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """An engine looks at the inbox; now and then although there is nothing in it."""
        if not self.row.inbox and self.rng.random() < 0.9:
            return False
        engine = self.rng.choice(self.engines)
        try:
            engine.take_turn(self.rng.choice((1, 1, 1, 2, 5)))
        except Crash as crash:
            self.happened[f"crash {crash.point}"] += 1
            engine.restart()
            # A dead engine's turn is void when its time is up.
            self.clock.advance(6)
        self._look(engine)
        return True

    def _look(self, engine: Engine) -> None:
        """Ask the promises about what is new."""
        for entry in self.store.log(RUN_ID, after=len(self.promises.seen.log)):
            self.promises.see(entry)
        if not self.row.inbox and engine.is_current:
            self.promises.rest(engine.state, self.outside())

    def _tell(self, report: r.Report) -> None:
        if self.skew_seconds:
            report = msgspec.structs.replace(report, at=self.clock.seen_from(self.skew_seconds))
        self.told.append(report)
        self.store.put(RUN_ID, report)

    def _store_fault(self) -> None:
        self.store.faults.append(self.rng.choice(STORE_FAULTS))

    def _crash(self) -> None:
        self.points.arm(self.rng.choice(list(FAULT_POINTS)), self.rng.randint(1, 3))

    def _wrong_clock(self) -> None:
        self.skew_seconds = self.rng.choice((-50.0, -1.0, 0.0, 0.0))

    # -- workers -----------------------------------------------------------------------------------------------------

    def _lease(self) -> bool:
        lease = self.store.lease(self.rng.choice(("w1", "w2")), self.clock.now())
        if lease is None:
            return False
        if self._dies_at("after_lease", lease):
            return True
        started = r.TaskStarted(self.clock.now(), lease.task.place, lease.task.attempt, lease.worker, "h1")
        if self.rng.random() < 0.8:
            self._tell(started)
        elif self.rng.random() < 0.5:
            self.mail.append(started)
        return True

    def _dies_at(self, point: str, lease: Lease) -> bool:
        """A worker may die as well as an engine: its lease is left to run out."""
        try:
            fault(point)
        except Crash:
            self.happened[f"crash {point}"] += 1
            self.lost.add(lease.token)
            return True
        return False

    def _leases(self) -> list[Lease]:
        held = (queued.lease for queued in self.row.tasks.values() if queued.lease is not None)
        return [lease for lease in held if lease.token not in self.lost]

    def _end_task(self) -> bool:
        leases = self._leases()
        if not leases:
            return False
        lease = self.rng.choice(leases)
        if self._dies_at("before_report", lease):
            return True
        self._report(lease, self._ended(lease))
        return True

    def _report(self, lease: Lease, report: r.Report) -> None:
        self.told.append(report)
        try:
            self.store.report(lease.token, report)
        except StaleLease:
            # The worker did not hear that its lease was void; the core is told all the same, and refuses.
            self.happened["stale lease"] += 1
            self.store.put(RUN_ID, report)

    def _work(self) -> bool:
        """Lease something, or end something: in the tame part no worker is lost."""
        if self._leases():
            return self._end_task()
        if self._lease():
            return True
        if any(queued.lease for queued in self.row.tasks.values()):
            self.clock.advance(60)
            self._time_passes()
            return True
        return False

    def _ended(self, lease: Lease) -> r.TaskEnded:
        place, attempt = lease.task.place, lease.task.attempt
        at = self.clock.seen_from(self.skew_seconds)
        if self.rng.random() >= self.trouble:
            warned = ({"severity": "warning", "code": "SLOW"},) if self.rng.random() < 0.05 else ()
            return r.TaskEnded(at, place, attempt, Outcome(reported=warned), self._output(place))
        usage = {"peak_memory": self.rng.choice((2**20, 2**21))}
        return r.TaskEnded(at, place, attempt, self._bad_outcome(), usage=usage)

    def _bad_outcome(self) -> Outcome:
        return self.rng.choice(_OUTCOMES)

    def _output(self, place: str) -> Any:
        if ".lister" in place:
            return self.rng.choice(([1, 2, 3], [], ["a", "b"], "no list"))
        said = {"status": self.rng.choice(("completed", "failed")), "output": "decided", "reason": "so"}
        return self.rng.choice((None, 7, "text", [1, 2], said, said))

    def _lose_worker(self) -> bool:
        leases = self._leases()
        if leases:
            self.lost.add(self.rng.choice(leases).token)
        return bool(leases)

    def _interrupt(self) -> bool:
        leases = self._leases()
        if leases:
            lease = self.rng.choice(leases)
            self._report(lease, r.TaskInterrupted(self.clock.now(), lease.task.place, lease.task.attempt))
        return bool(leases)

    # -- reports that should not be -----------------------------------------------------------------------------------

    def _repeat_report(self) -> None:
        """An old report comes once more. A verb said again is a new verb, so those are not repeated."""
        old = [report for report in self.told if not isinstance(report, _VERBS)]
        if old:
            self.store.put(RUN_ID, self.rng.choice(old))

    def _forge_report(self) -> None:
        place = self.rng.choice(list(self.engines[0].state.places) or ["nowhere"])
        attempt = self.rng.choice((0, 99))
        kinds: list[Callable[[], r.Report]] = [
            lambda: r.TaskStarted(self.clock.now(), place, attempt),
            lambda: r.TaskEnded(self.clock.now(), place, attempt),
            lambda: r.LeaseExpired(self.clock.now(), "nowhere", 1),
            lambda: r.ChildEnded(self.clock.now(), place, attempt, 7, "failed"),
        ]
        self.store.put(RUN_ID, self.rng.choice(kinds)())

    def _deliver(self) -> bool:
        """Mail arrives in any order."""
        if not self.mail:
            return False
        self._tell(self.mail.pop(self.rng.randrange(len(self.mail))))
        return True

    # -- time --------------------------------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self.clock.advance(self.rng.choice((0, 0.5, 3, 12, 45, 300)))
        self._time_passes()

    def _time_passes(self) -> None:
        for lease in self._leases():
            self.store.renew(lease.token, self.clock.now())
        self.store.expire(self.clock.now())
        self.told.extend(
            r.TimerFired(self.clock.now(), timer.kind, timer.place, timer.number)
            for timer in self.row.timers.values()
            if timer.due <= self.clock.now()
        )
        self.store.fire_timers(self.clock.now())

    def _next_timer(self) -> bool:
        if not self.row.timers:
            return False
        self.clock.advance_to(min(timer.due for timer in self.row.timers.values()))
        self._time_passes()
        return True

    def _fire_early(self) -> bool:
        timers = list(self.row.timers.values())
        if timers:
            timer = self.rng.choice(timers)
            self.store.put(RUN_ID, r.TimerFired(self.clock.now(), timer.kind, timer.place, timer.number))
        return bool(timers)

    def _fire_again(self) -> bool:
        fired = [report for report in self.told if isinstance(report, r.TimerFired)]
        if fired:
            old = self.rng.choice(fired)
            self.store.put(RUN_ID, msgspec.structs.replace(old, at=self.clock.now()))
        return bool(fired)

    # -- people and child runs ----------------------------------------------------------------------------------------

    def _cancel(self) -> None:
        self._tell(r.CancelRequested(self.clock.now(), "someone", "enough"))

    def _cancel_now(self) -> None:
        self._tell(r.CancelRequested(self.clock.now(), "someone", "enough", now=True))

    def _pause(self) -> None:
        self._tell(r.PauseRequested(self.clock.now(), "someone"))

    def _resume(self) -> bool:
        if self.status != "paused":
            return False
        self._tell(r.ResumeRequested(self.clock.now(), "someone"))
        return True

    def _ask_nonsense(self) -> None:
        """Verbs that may make no sense now: they are refused, and change nothing."""
        now, step = self.clock.now(), self._some_step() or "nothing"
        verbs: list[Callable[[], r.Report]] = [
            lambda: r.Classified(now, step, "retry", "someone", "because"),
            lambda: r.Classified(now, "nothing", "fail", "someone", "because"),
            lambda: r.ApprovalGiven(now, step, True, "someone", ""),
            lambda: r.RunRequested(now, RUN_ID),
            lambda: r.ResumeRequested(now),
        ]
        if self.status not in RUN_ENDED:
            verbs.append(lambda: r.RetryRequested(now, "someone"))
        else:
            verbs += [lambda: r.CancelRequested(now), lambda: r.PauseRequested(now)]
        self.store.put(RUN_ID, self.rng.choice(verbs)())

    def _decide(self) -> bool:
        """Somebody looks at what waits for a person."""
        places = [place for place in self._current().state.places.values() if self._waits_for_a_person(place)]
        if not places:
            return False
        place = self.rng.choice(places)
        if place.status == "pending_failed":
            self._tell(self._classification(place))
        else:
            is_approved = self.rng.random() < 0.7
            self._tell(r.ApprovalGiven(self.clock.now(), place.key, is_approved, "someone", "looked at it"))
        return True

    def _waits_for_a_person(self, place: Place) -> bool:
        if place.status == "pending_failed":
            return True
        is_approval = place.spec.action is not None and place.spec.action.kind == "approve"
        return is_approval and place.status == "running" and not place.phase

    def _classification(self, place: Place) -> r.Classified:
        verdict: Any = "retry" if self.patience > 0 and self.rng.random() < 0.5 else "fail"
        self.patience -= verdict == "retry"
        memory = 2**22 if self.rng.random() < 0.3 else None
        return r.Classified(self.clock.now(), place.key, verdict, "someone", "seen before", memory)

    def _current(self) -> Engine:
        engine = self.engines[0]
        engine.catch_up()
        return engine

    def _child_ends(self) -> bool:
        children = [child for child in self.row.children.values() if not child.is_paused or child.is_stopping]
        if not children:
            return False
        child = self.rng.choice(children)
        del self.row.children[child.place, child.attempt]
        statuses: tuple[Any, ...] = ("cancelled",) if child.is_stopping else ("completed", "failed", "cancelled")
        status = self.rng.choice((*statuses, "completed"))
        causes = (failure("EXIT_NONZERO", "exit code 1"),) if status == "failed" else ()
        self._tell(r.ChildEnded(self.clock.now(), child.place, child.attempt, 7, status, {"n": 1}, causes))
        return True

    def _some_step(self) -> str:
        return self.rng.choice(("", *(step.name for step in self.workflow.steps)))

    # -- telling -----------------------------------------------------------------------------------------------------

    def last_facts(self, count: int = 30) -> str:
        return story(self.row.log[-count:])


_VERBS = (
    r.CancelRequested,
    r.PauseRequested,
    r.ResumeRequested,
    r.RetryRequested,
    r.Classified,
    r.ApprovalGiven,
    r.RunRequested,
)

_OUTCOMES = (
    Outcome(1, stderr_tail="the tail of it"),
    Outcome(7),
    Outcome(None, signal=9),
    Outcome(None, is_timed_out=True),
    Outcome(None, signal=9, is_out_of_memory=True),
    Outcome(1, reported=({"code": "CUSTOM", "message": "no luck"},)),
    Outcome(0, reported=({"code": "WORKER_LOST", "severity": "error"}, "text")),
    Outcome(0, reported=({"code": "BREACH", "severity": "critical"},)),
    Outcome(0, code="HTTP_4XX", message="404"),
    Outcome(0, code="HTTP_429", message="slow down", details={"retry_after": 4}),
    Outcome(0, missing_outputs=("mesh",)),
    Outcome(0, output_error="not JSON"),
)
