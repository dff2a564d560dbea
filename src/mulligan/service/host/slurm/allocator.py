"""`slurm auto`: submits the pilots that the queue asks for, again and again, and keeps nothing but what it may forget.

One look is: what the queue asks for (one query), the pilots that there are (squeue, by name), the plan, and a call of
sbatch per kind of pilot. All of it happens while no other process submits for this store. If the controller or the
store cannot be reached, it waits longer each time and does nothing else.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

import msgspec

from mulligan.core.effects.run_lists import QueuedShape
from mulligan.core.model.clusters.slurm_profile import SlurmProfile
from mulligan.core.model.text.formatting import pluralize
from mulligan.core.model.workflow import Breaker
from mulligan.errors import SlurmRefused, SlurmUnreachable, StoreUnavailable
from mulligan.ports import BreakerRecord, Store, WorkerRecord
from mulligan.service.host.slurm.pilot_ends import FailedPilot, failed_pilot, joining_of
from mulligan.service.host.slurm.pilots import Pilot, PilotName, PilotSize, free_numbers
from mulligan.service.host.slurm.planning import Plan, Submission, Supply, can_take, plan, size_for, suits
from mulligan.service.host.slurm.submission import Cluster, Submitted
from mulligan.service.host.slurm.user_files import CountedJobs, DrainMarks

# How often it looks; and how long it waits at most if Slurm or the store cannot be reached.
POLL_SECONDS, AWAY_SECONDS_MAX = 10.0, 300.0
# A pilot whose worker has not joined so long after its start is no promise any more.
JOIN_SECONDS_MAX = 300.0
# A worker that has joined so recently has perhaps not asked for tasks yet.
SETTLE_SECONDS = 5.0
# What Slurm has refused is not tried again for so long.
REFUSED_SECONDS = 600.0
# A signal is noticed within this time.
TICK_SECONDS = 0.2
# After three pilots in a row that ended before their workers joined, none is submitted for five minutes; then one.
BREAKER_RULES = Breaker(failures=3, reset=300.0)


def breaker_name(profile: str) -> str:
    return f"slurm:{profile}"


class Poll(msgspec.Struct, frozen=True):
    """What one poll has found and done."""

    # Tasks that wait for a worker.
    queued: int = 0
    active: int = 0
    submitted: tuple[Submitted, ...] = ()
    # What stands in the way, in sentences.
    notes: tuple[str, ...] = ()
    # How many tasks were ended as NO_CAPACITY.
    refused: int = 0


class Allocator:
    """Submits pilots for one store, at most `pilots_max` at a time."""

    def __init__(
        self,
        cluster: Cluster,
        store: Callable[[], Store],
        profiles: Mapping[str, SlurmProfile],
        *,
        pilots_max: int,
        say: Callable[[str], None],
        project: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        # A function, since the store may be away when it starts.
        self._store = store
        self._profiles = profiles
        self._pilots_max = pilots_max
        self._say = say
        self._project = project
        self._monotonic = monotonic
        self._drained = DrainMarks(cluster.folder)
        self._since = datetime.now(UTC)
        self._counted = CountedJobs(cluster.folder)
        self._refused: dict[tuple[str, PilotSize], tuple[float, str]] = {}
        self._said: tuple[str, ...] = ()
        self._is_ending = False

    # -- polling ---------------------------------------------------------------------------------------------------

    def serve(self, every_seconds: float = POLL_SECONDS) -> str:
        """Poll until a signal or `slurm drain` ends it. Why it has ended."""
        away = 0
        with self._signals():
            while not self._is_ending:
                if self._drained.all_since(self._since):
                    return "it was drained"
                seconds = every_seconds
                try:
                    self.announce(self.poll())
                    away = 0
                except (SlurmUnreachable, StoreUnavailable) as error:
                    away += 1
                    seconds = min(AWAY_SECONDS_MAX, every_seconds * 2**away)
                    self.announce(Poll(notes=(f"{error.message}; looking again in {seconds:g}s",)))
                self._sleep(seconds)
        return "it was stopped"

    def announce(self, found: Poll) -> None:
        """Say what is new."""
        for one in found.submitted:
            self._say(
                f"submitted {pluralize(len(one.numbers), 'pilot')} with profile '{one.profile}': job {one.job_id}"
            )
        if found.refused:
            self._say(f"ended {pluralize(found.refused, 'task')} as NO_CAPACITY")
        for note in found.notes:
            if note not in self._said:
                self._say(note)
        self._said = found.notes

    def _sleep(self, seconds: float) -> None:
        due = self._monotonic() + seconds
        while not self._is_ending and (left := due - self._monotonic()) > 0:
            time.sleep(min(TICK_SECONDS, left))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def end(number: int, frame: FrameType | None) -> None:
            self._is_ending = True

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # -- one poll ----------------------------------------------------------------------------------------------------

    def poll(self) -> Poll:
        """Submit what is missing now."""
        store = self._store()
        if not store.queued_shapes(self._project):
            # Nobody is asked for nothing: controllers have many users.
            return Poll()
        with self._cluster.alone():
            if self._drained.all_since(self._since):
                return Poll()
            pilots = self._cluster.cancel_duplicates(self._cluster.pilots())
            workers = [one for one in store.workers() if one.cpus and not one.is_expired]
            failed = self._count_ends(store, pilots, workers)
            profiles = {name: one for name, one in self._profiles.items() if not self._drained.since(name, self._since)}
            now = store.now() or datetime.now(UTC)
            limits, notes = _limits(profiles, store.breakers(), failed, now)
            supply = _supply(pilots, workers, datetime.now(UTC), now)
            # Read last: what a worker has taken since it was listed is not missing.
            demand = store.queued_shapes(self._project)
            return self._submit(store, _Situation(profiles, demand, supply, limits, pilots, workers), notes)

    def _submit(self, store: Store, now: _Situation, notes: list[str]) -> Poll:
        submitted: list[Submitted] = []
        count_refused = 0
        supply = list(now.supply)
        taken = {(str(one.name), one.number) for one in now.pilots if one.job.is_active}
        limits = dict(now.limits)
        while True:
            found = self._plan(now, supply, limits)
            if not found.submissions:
                break
            wanted = found.submissions[0]
            name = PilotName(self._cluster.store, wanted.profile, wanted.size)
            numbers = free_numbers({number for text, number in taken if text == str(name)}, wanted.count)
            try:
                submitted.append(self._cluster.submit(name, numbers, now.profiles[wanted.profile]))
            except SlurmRefused as refusal:
                sentence = refusal.sentence or refusal.message
                if refusal.about == "shape":
                    self._refused[wanted.profile, wanted.size] = (self._monotonic() + REFUSED_SECONDS, sentence)
                    count_refused += self._refuse_tasks(store, now, wanted, sentence)
                    continue
                notes.append(f"Slurm does not take pilots of profile '{wanted.profile}' now: {sentence}")
                if refusal.about == "profile":
                    store.count_outcome(breaker_name(wanted.profile), BREAKER_RULES, "failure")
                # Others may still be taken.
                limits[wanted.profile] = 0
                continue
            taken |= {(str(name), number) for number in numbers}
            supply += [Supply(wanted.profile, wanted.size, is_open=True)] * wanted.count
        notes += [f"{pluralize(one.shape.count, 'task')} without pilots: {one.reason}" for one in found.unmet]
        queued = sum(one.count for one in now.demand)
        return Poll(queued, len(supply), tuple(submitted), tuple(dict.fromkeys(notes)), count_refused)

    def _plan(self, now: _Situation, supply: Sequence[Supply], limits: Mapping[str, int]) -> Plan:
        self._refused = {key: one for key, one in self._refused.items() if one[0] > self._monotonic()}
        return plan(
            now.profiles,
            now.demand,
            supply,
            pilots_max=self._pilots_max,
            limits=limits,
            refused=self._refused.keys(),
        )

    def _refuse_tasks(self, store: Store, now: _Situation, wanted: Submission, sentence: str) -> int:
        """End the tasks for which Slurm refuses every pilot, unless a worker that is up could take them."""
        count = 0
        for shape in wanted.shapes:
            is_open = any(
                suits(profile, shape) and (name, size_for(profile, shape)) not in self._refused
                for name, profile in now.profiles.items()
            )
            if not is_open and not any(_could_take(worker, shape) for worker in now.workers):
                message = f"Slurm refuses a job of this size: {sentence} (profile '{wanted.profile}', {wanted.size})"
                count += store.refuse_queued(shape, message, self._project)
        now.demand[:] = [one for one in now.demand if one not in wanted.shapes] if count else now.demand
        return count

    def _count_ends(self, store: Store, pilots: Sequence[Pilot], workers: Sequence[WorkerRecord]) -> list[FailedPilot]:
        """Count for the breakers of profiles which pilots have come up; those that have newly failed."""
        known = {one.name: one for one in store.breakers()}
        jobs = {worker.job.id for worker in workers if worker.job is not None}
        failed: list[FailedPilot] = []
        counted = self._counted.read()
        for one in sorted(pilots, key=lambda one: int(one.job.job_id)):
            if one.job.job_id in counted:
                continue
            joining = joining_of(one, self._cluster.home.folder, has_worker=one.job.job_id in jobs)
            if joining == "unknown":
                continue
            counted.add(one.job.job_id)
            # Before it is counted: if we are killed in between, one is missing rather than counted twice.
            self._counted.write(counted & {other.job.job_id for other in pilots})
            name = breaker_name(one.name.profile)
            if joining == "failed":
                failed.append(failed_pilot(one, self._cluster.home.folder))
                store.count_outcome(name, BREAKER_RULES, "failure")
            elif name in known and (known[name].failures or known[name].status != "closed"):
                store.count_outcome(name, BREAKER_RULES, "success")
        return failed


class _Situation(msgspec.Struct):
    """What a look has found."""

    profiles: Mapping[str, SlurmProfile]
    demand: list[QueuedShape]
    supply: list[Supply]
    limits: Mapping[str, int]
    pilots: Sequence[Pilot]
    workers: Sequence[WorkerRecord]


def _limits(
    profiles: Collection[str], breakers: Sequence[BreakerRecord], failed: Sequence[FailedPilot], now: datetime
) -> tuple[dict[str, int], list[str]]:
    """How many pilots a profile may have whose breaker is open: none, or one that tries. And what to say."""
    notes = [f"{one} (output: {one.output})" for one in failed[-1:]]
    limits: dict[str, int] = {}
    by_name = {one.name: one for one in breakers}
    for profile in profiles:
        one = by_name.get(breaker_name(profile))
        if one is None or one.status == "closed":
            continue
        is_due = one.retry_at is None or one.retry_at <= now
        limits[profile] = 1 if is_due else 0
        if not is_due and one.retry_at is not None:
            until = one.retry_at.astimezone().strftime("%H:%M:%S")
            notes.append(
                f"no pilots of profile '{profile}' until {until}: {pluralize(one.failures, 'pilot')} in a row have "
                f"failed (mulligan breakers --reset {one.name} tries again now)"
            )
    return limits, notes


def _supply(
    pilots: Sequence[Pilot], workers: Sequence[WorkerRecord], now: datetime, store_now: datetime
) -> list[Supply]:
    """The active pilots, and whether their workers are still to come or have only just come."""
    jobs = {worker.job.id for worker in workers if worker.job is not None and not _is_new(worker, store_now)}
    return [
        Supply(one.name.profile, one.name.size, is_open=one.job.job_id not in jobs and _may_join(one, now))
        for one in pilots
        if one.job.is_active
    ]


def _is_new(worker: WorkerRecord, now: datetime) -> bool:
    return worker.started_at is not None and (now - worker.started_at).total_seconds() < SETTLE_SECONDS


def _may_join(one: Pilot, now: datetime) -> bool:
    if one.job.is_pending or one.job.started_at is None:
        return True
    is_ending = one.job.state == "COMPLETING"
    return not is_ending and (now - one.job.started_at).total_seconds() < JOIN_SECONDS_MAX


def _could_take(worker: WorkerRecord, shape: QueuedShape) -> bool:
    nodes = worker.nodes if shape.nodes >= worker.nodes_min else 0
    return can_take(shape, cpus=worker.cpus, memory=worker.memory, gpus=worker.gpus, nodes=nodes, labels=worker.labels)
