"""A worker process: an engine and its hands under one name, from registration to retirement.

Drives one run to its end (`mulligan run`), or serves whatever comes (`mulligan worker`). Survives a store that goes
away for a while, and an operator who presses Ctrl-C once or twice.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Literal

import msgspec

from mulligan.core.model.workflow import CANCEL_GRACE_SECONDS
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.engine.engine import Engine
from mulligan.engine.heartbeat import WorkerExpired
from mulligan.engine.observers import NullObserver, Observer
from mulligan.engine.run_driver import RunDriver
from mulligan.engine.worker_expiry import expire_dead_workers
from mulligan.errors import HomeMoved, MulliganError, StoreUnavailable
from mulligan.history.views import waits_for_people
from mulligan.language.expressions import Cel
from mulligan.ports import Store, WorkerRecord
from mulligan.service.breakers import find_breaker_waits
from mulligan.service.home import Home, log_bytes_max, this_host
from mulligan.service.locks import Locks
from mulligan.store.clock import PROCESS_CLOCK, ProcessClock
from mulligan.worker import lock
from mulligan.worker.cgroups import memory_limit
from mulligan.worker.folders import Folders, remove_folder
from mulligan.worker.leftovers import kill_leftovers
from mulligan.worker.local_executor import LocalExecutor
from mulligan.worker.room import VISIBLE, visible_gpus

Ending = Literal["ended", "waiting", "interrupted"]

LEASE_SECONDS = 30.0
# A store that is away for a while must not cost us what we run: that ends at two thirds of the lease.
BEATS_PER_LEASE = 6
# How often a worker looks for runs that nobody drives any more, where no heartbeat tells.
IDLE_RUNS_SECONDS = 1.0
# How often a run that has breakers is looked at, whether only persons and breakers hold it up.
HELD_UP_SECONDS = 1.0
# How soon a signal is seen.
PATIENCE_SECONDS = 0.1
# How long the engine waits between two questions to a store that does not answer: from, and at most. Of a short lease
# at most this share: who has the store back gives the others one lease to come back too.
STORE_SECONDS, STORE_SECONDS_MAX, STORE_LEASE_SHARE_MAX = 0.1, 2.0, 1 / 6
# How many runs that nobody drives one worker takes up at a time.
RUNS_TAKEN_MAX = 1000


# What tells a worker which GPUs it may use.
GPUS_VARIABLE = VISIBLE


class Capacity(msgspec.Struct, frozen=True):
    """What a worker may use at once."""

    cpus: float
    memory: int
    gpus: int = 0
    labels: tuple[str, ...] = ()


def machine(parallel: int | None = None) -> Capacity:
    """What this machine has: its processors, unless another number is named, its memory, its GPUs."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Capacity(float(parallel or cpus), min(memory, memory_limit() or memory), visible_gpus(os.environ))


class Driver:
    """One worker, alive while the context lasts. `has_hands` False: it takes turns and runs nothing."""

    def __init__(
        self,
        home: Home,
        store: Store,
        capacity: Capacity | None = None,
        *,
        watcher: Observer | None = None,
        lease_seconds: float = LEASE_SECONDS,
        host: str = "",
    ) -> None:
        self.home = home
        self.store = store
        self.capacity = capacity
        self.watcher = watcher or NullObserver()
        self.lease_seconds = lease_seconds
        # Where its tasks run, as the store knows it.
        self.host = host or this_host()
        self.interrupts = 0
        self.executor: LocalExecutor | None = None
        self.lock: lock.Lock | None = None
        # A store that machines share has a clock of its own, and we go by that. Else each process has one.
        self.clock = ProcessClock() if store.is_shared else PROCESS_CLOCK
        self._locks = Locks(home, is_shared=store.is_shared)
        self._was_unproven = False
        self._beaten_at = 0.0
        self._idle_at = -IDLE_RUNS_SECONDS
        self._idle_before: int | None = None
        self._held_at = -HELD_UP_SECONDS

    def __enter__(self) -> Driver:
        self._set_up()
        return self

    def __exit__(self, *_: object) -> None:
        self._tear_down()

    # -- one life under one name -------------------------------------------------------------------------------------

    def _set_up(self, root_run_id: int | None = None) -> None:
        """All of it, or nothing of ours is left."""
        self.name = f"{self.host}.{os.getpid()}.{os.urandom(3).hex()}"
        self.home.make()
        self.lock = lock.hold(self.home.locks, self.name)
        self._home_stat = os.stat(self.home.folder)
        try:
            self.executor = self._executor(self.lock.fd)
            self.clock.set_by(self.store.now)
            # Right before the engine: its heartbeats count from here.
            self.store.register(self._record(self.lock.path))
            self.engine = Engine(
                self.store,
                self.clock,
                Cel(os.environ, self.store.artifacts.fetch, self.store.artifacts.keep),
                self.name,
                self.executor,
                root_run_id=root_run_id,
                watcher=self.watcher,
                check=self._refuse_moved_home,
                lease_seconds=self.lease_seconds,
            )
            self._beaten_at = time.monotonic()
            self.rescue()
        except BaseException:
            # The store may know us by now, or not: whoever looks at our lock sees that we are gone.
            self._put_down(is_known=False)
            raise

    def _record(self, lock_path: str) -> WorkerRecord:
        can = self.capacity or Capacity(0.0, 0)
        return WorkerRecord(
            name=self.name,
            host=self.host,
            pid=os.getpid(),
            lock=lock_path,
            cpus=can.cpus,
            memory=can.memory,
            gpus=can.gpus,
            labels=can.labels,
            started_at=self.clock.now(),
        )

    def _executor(self, lock_fd: int) -> LocalExecutor | None:
        if self.capacity is None:
            return None
        return LocalExecutor(
            name=self.name,
            host=self.host,
            home=self.home.folder,
            cpus=self.capacity.cpus,
            memory=self.capacity.memory,
            gpus=self.capacity.gpus,
            labels=self.capacity.labels,
            artifacts=self.store.artifacts,
            results=self.store.tagged,
            clock=self.clock,
            lock_fd=lock_fd,
            lease_seconds=self.lease_seconds if self.store.is_shared else None,
            log_bytes_max=log_bytes_max(os.environ),
        )

    def _tear_down(self) -> None:
        """In order: nothing of ours runs any more when the store hears that we are gone."""
        self._close_hands()
        # Where the store has not heard it: our lock is free in a moment, whoever comes next sees it, and buries us.
        self._put_down(is_known=self._retire() or self._retire())

    def _retire(self) -> bool:
        """Whether the store has heard that we are gone. A connection that was lost is noticed by who uses it first."""
        try:
            self.engine.let_go()
            self.store.retire(self.name)
        except StoreUnavailable:
            return False
        return True

    def _close_hands(self) -> None:
        if self.executor is not None:
            self.executor.close()
        self.executor = None

    def _put_down(self, *, is_known: bool = True) -> None:
        """Nothing of ours runs, and our lock is free."""
        self._close_hands()
        if self.lock is not None:
            self.lock.release(is_known=is_known)
        self.lock = None

    def rescue(self) -> None:
        """Bury workers that died, and end and remove what they left on this machine."""
        may_expire_others = self.engine.contact.may_expire_others or not self.store.is_shared
        for worker in expire_dead_workers(
            self.store, self._locks.look_again, kill_leftovers, may_expire_others=may_expire_others
        ):
            # What it had may be what we wait for: a run of ours, a breaker's probe.
            self.engine.call()
            if worker.lock:
                Path(self._locks.path(worker)).unlink(missing_ok=True)
            remove_folder(self.home.folders.worker(worker.name))
        if self.store.is_shared:
            others = (worker for worker in self.store.workers() if worker.name != self.name and worker.cpus)
            self.engine.set_alone(next(others, None) is None)

    # -- driving -----------------------------------------------------------------------------------------------------

    def drive(self, run_id: int, wait_seconds: float = 0.0) -> Ending:
        """Drive a run, and the runs it starts, until it has ended, waits for a person, or we are interrupted."""
        self.engine.root_run_id = run_id
        if run_id not in self.engine.drives:
            if self.store.run(run_id).status in RUN_ENDED:
                # The verb that is followed was its last turn.
                return "ended"
            self.engine.take_up(self._tree(run_id))
        with self._signals():
            while not self.interrupts:
                ending = self._once(lambda: self._rests(run_id, wait_seconds))
                if ending is not None:
                    return ending
            self._wind_up()
        return self._end_of_interrupted(run_id)

    def _tree(self, run_id: int) -> list[int]:
        """The run and the runs below it that have not ended: one that nobody tells anything may have tasks to run."""
        found = [run_id]
        for above in found:
            children = self.store.children(above)
            found.extend(child.run_id for child in children if child.status not in RUN_ENDED)
        return found

    def serve(self, until: Callable[[], bool] = lambda: False) -> None:
        """Take turns and tasks of all runs until we are interrupted."""
        with self._signals():
            while not self.interrupts and not until():
                self._once(self._take_up_idle)
            self._wind_up()

    def _take_up_idle(self) -> None:
        """In a store that no host shares tasks come with the turn of their run: of runs that nobody drives, ever.

        Where several do, whoever has room is given tasks, whosever the run is.
        """
        if self.store.is_shared or time.monotonic() - self._idle_at < IDLE_RUNS_SECONDS:
            return
        self._idle_at = time.monotonic()
        if not self.engine.drives:
            # Nothing is timed by our clock now: steps of the wall clock since we started need not be kept out of it.
            self.clock.follow_wall()
        self.rescue()
        unfinished = self.store.runs(
            limit=RUNS_TAKEN_MAX, before=self._idle_before, statuses=("new", "running", "paused")
        )
        # The next time those behind: a thousand that wait for people must not hide an older one that has work.
        self._idle_before = unfinished[-1].run_id if len(unfinished) == RUNS_TAKEN_MAX else None
        self.engine.take_up([record.run_id for record in unfinished])

    def turn(self, run_id: int, until: Callable[[], bool]) -> None:
        """Take the run's turns, and nothing else, until something is true."""
        self.engine.root_run_id = run_id
        self.engine.take_up([run_id])
        while not until():
            self._once()

    def _rests(self, run_id: int, wait_seconds: float) -> Ending | None:
        self.engine.refuse_given_up(run_id)
        if self._has_ended(run_id):
            return "ended"
        return "waiting" if self._waits(run_id, wait_seconds) else None

    def _end_of_interrupted(self, run_id: int) -> Ending:
        try:
            return "ended" if self._has_ended(run_id) else "interrupted"
        except StoreUnavailable:
            return "interrupted"

    def _has_ended(self, run_id: int) -> bool:
        return run_id not in self.engine.drives and self.store.run(run_id).status in RUN_ENDED

    def _waits(self, run_id: int, wait_seconds: float) -> bool:
        """Whether only a person can move the run on: nothing runs, and no timer is due soon."""
        if not self.engine.is_idle or not self._is_time_to_look():
            return False
        drives = self.engine.drives.values()
        if not any(self._waits_for_people(drive) for drive in drives):
            return False
        if all(drive.is_paused for drive in drives):
            # A timer takes effect when the pause is lifted, so it is not waited for.
            return True
        due = self.engine.next_due()
        return due is None or (due - self.clock.now()).total_seconds() > wait_seconds

    def _waits_for_people(self, drive: RunDriver) -> bool:
        return drive.is_paused_at_a_bug or waits_for_people(
            drive.state, find_breaker_waits(self.store, drive.state, self.clock.now())
        )

    def _is_time_to_look(self) -> bool:
        """Behind a breaker ten thousand tasks may wait for an hour: they are not counted with every round."""
        if self.engine.known.has_breakers and time.monotonic() - self._held_at < HELD_UP_SECONDS:
            return False
        self._held_at = time.monotonic()
        return True

    def _once(self, look: Callable[[], Ending | None] = lambda: None) -> Ending | None:
        """Once round the loop, and what is to be seen then. Nothing is, where the store had to be waited for."""
        self._refuse_moved_home()
        try:
            self._beat()
            self.engine.tick(PATIENCE_SECONDS)
            self.watcher.tick()
            return look()
        except StoreUnavailable as error:
            self._outlast(error)
        except WorkerExpired:
            self._start_over()
        return None

    def _beat(self) -> None:
        """Say that we live, where that counts; and look for the dead, where somebody may wait for what they had."""
        is_shared = self.store.is_shared
        others_matter = is_shared or self.engine.known.has_breakers or self._has_not_its_run()
        if not others_matter or not self._is_time_to_beat():
            return
        if is_shared:
            self.engine.contact.beat()
            self.clock.set_by(self.store.now)
        self.rescue()
        if self._has_not_its_run():
            self._tell_what_is_waited_for()
            self.engine.take_up(self._tree(self.engine.root_run_id or 0))

    def _tell_what_is_waited_for(self) -> None:
        unproven = self._locks.unproven
        if unproven:
            message = f"the lock file of worker '{unproven[0]}' is not in this home"
            self.watcher.trouble(f"{message}; waiting {self.home.lease_seconds:g}s to be sure that it has ended")
        elif self._was_unproven:
            self.watcher.trouble("")
        self._was_unproven = bool(unproven)

    def _say_alive(self) -> None:
        """What is given its grace needs its lease for so long."""
        if self.store.is_shared and self._is_time_to_beat():
            self.engine.contact.beat()

    def _is_time_to_beat(self) -> bool:
        """Whether the last time was long enough ago: then this is the next one."""
        seconds = self.lease_seconds / BEATS_PER_LEASE if self.store.is_shared else IDLE_RUNS_SECONDS
        now = time.monotonic()
        if now - self._beaten_at < seconds:
            return False
        self._beaten_at = now
        return True

    def _has_not_its_run(self) -> bool:
        """Whether another process has the run that this one is to drive: it may be dying, or die later."""
        root = self.engine.root_run_id
        return root is not None and root not in self.engine.drives

    def _refuse_moved_home(self) -> None:
        """End all that runs, and raise, where our home is no longer at its place: others may take up our runs there.

        Asked in every round, so that nothing of ours runs any more when somebody goes on with them; and before anything
        is written, since a task that has lost its files fails for no reason of its own.
        """
        if self.lock is None or self._is_home_in_place(self.lock):
            return
        if self.executor is not None:
            self.executor.drop_all()
        home, lock_path = self.home.folder, self.lock.moved_to
        found = home if lock_path is None else lock_path.parent.parent
        if found == home:
            raise HomeMoved(
                f"the home '{home}', or the database in it, was moved, replaced or removed while this process used it; "
                "all that it ran was stopped",
                hint="if it is at another place now, go on there: mulligan resume --home DIR",
            )
        remove_folder(Folders(found).worker(self.name))
        raise HomeMoved(
            f"the home '{home}' was moved to '{found}' while this process used it; all that it ran was stopped",
            hint=f"to go on there: mulligan resume --home {shlex.quote(str(found))}",
            moved_to=str(found),
        )

    def _is_home_in_place(self, held: lock.Lock) -> bool:
        """Where heartbeats count, whoever buries us removes our lock: that it is gone says nothing of the home."""
        if not self.store.is_shared:
            return held.is_in_place and self.store.is_in_place
        try:
            return held.is_in_place or os.path.samestat(os.stat(self.home.folder), self._home_stat)
        except OSError:
            return False

    def _outlast(self, error: MulliganError) -> None:
        """The store is away: what runs goes on, nothing is lost, and we ask again until it answers."""
        self.watcher.trouble(f"{error.message}; waiting for it")
        for seconds in pauses(self.lease_seconds):
            if self.interrupts:
                return
            self._refuse_moved_home()
            self.engine.wait(seconds)
            self.watcher.tick()
            try:
                self.engine.recover()
            except StoreUnavailable:
                continue
            except WorkerExpired:
                self._start_over()
            self.watcher.trouble("")
            return

    def _start_over(self) -> None:
        """We were taken for dead: others have our work. All that we run ends, and we come back under a new name."""
        self.watcher.trouble("this worker did not answer in time and was taken for dead; it starts anew")
        root, run_ids = self.engine.root_run_id, self.engine.run_ids
        if self.executor is not None:
            self.executor.drop_all()
        self._put_down()
        for seconds in pauses(self.lease_seconds):
            try:
                self._set_up(root)
                self.engine.take_up(run_ids)
            except StoreUnavailable as error:
                if self.interrupts:
                    raise
                self._put_down(is_known=False)
                self.watcher.trouble(f"{error.message}; waiting for it")
                time.sleep(seconds)
            else:
                self.watcher.trouble("")
                return

    # -- the operator ------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM are noted, and acted on between two rounds of the loop."""
        wanted = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._note) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.interrupts += 1

    def _wind_up(self) -> None:
        """Nothing starts; what runs has its grace, or with a second Ctrl-C none; what came of it is written."""
        self.engine.drain()
        if self.executor is None:
            return
        self.watcher.trouble("interrupted: waiting for what runs to end (once more to end it at once)")
        self.executor.stop_all(CANCEL_GRACE_SECONDS)
        is_hurried = False
        while not self.engine.is_settled:
            self._refuse_moved_home()
            if self.interrupts > 1 and not is_hurried:
                self.executor.stop_all(0.0)
                is_hurried = True
            try:
                self._say_alive()
                self.engine.tick(PATIENCE_SECONDS)
                self.watcher.tick()
            except (StoreUnavailable, WorkerExpired):
                # What cannot be written now is void with our lock: it runs again when somebody resumes.
                if not self.executor.is_busy:
                    return
                self.engine.wait(PATIENCE_SECONDS)
        self.watcher.trouble("")


def pauses(lease_seconds: float) -> Iterator[float]:
    """How long to wait each time before a store that is away is asked again."""
    seconds, seconds_max = STORE_SECONDS, min(STORE_SECONDS_MAX, lease_seconds * STORE_LEASE_SHARE_MAX)
    while True:
        yield min(seconds, seconds_max)
        seconds *= 2
