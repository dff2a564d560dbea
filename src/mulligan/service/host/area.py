"""The store and this machine, as `Service.machine` gives them: workers, breakers, cleaning, checks, Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.errors import InputInvalid, SlurmRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.core.model.clusters.slurm_profile import SlurmProfile
    from mulligan.service.driving.workers import WorkerLine
    from mulligan.service.host.breakers import Breaker
    from mulligan.service.host.doctor import Diagnosis
    from mulligan.service.host.gc import GarbageReport, RunRetention
    from mulligan.service.host.slurm.draining import Drained
    from mulligan.service.host.slurm.overview import SlurmStatus
    from mulligan.service.host.slurm.profiles import Profiles
    from mulligan.service.host.slurm.submission import Submitted
    from mulligan.service.runs.stored.run_reader import RunReader
    from mulligan.service.server.retention import Retention

PILOTS_MAX = 10_000


class Machine:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def list_workers(self) -> list[WorkerLine]:
        """The workers of the store: what each can take, what is in use, what it runs now."""
        from mulligan.service.driving import workers

        return workers.list_workers(self._reader)

    def list_breakers(self) -> list[Breaker]:
        """The circuit breakers that tasks of the store have asked."""
        from mulligan.service.host import breakers

        return breakers.list_breakers(self._reader)

    def reset_breaker(self, name: str, *, is_dry: bool = False) -> Breaker:
        """Close a circuit breaker; how it was before. With `is_dry` nothing is changed."""
        from mulligan.service.host import breakers

        return breakers.reset_breaker(self._reader, name, is_dry=is_dry)

    def collect_garbage(
        self, retention: RunRetention, *, unused_seconds: float | None = None, is_dry: bool = False
    ) -> GarbageReport:
        """Remove what no run refers to, and old runs as `retention` says; with `is_dry` only list it.

        Environments of python steps are removed if they were not used for `unused_seconds`, by default 30 days.
        """
        from mulligan.service.host import gc

        after = gc.UNUSED_SECONDS if unused_seconds is None else unused_seconds
        return gc.collect_garbage(self._reader, retention, unused_seconds=after, is_dry=is_dry)

    def keep_artifacts_in(self, setting: str) -> None:
        """Have the workers of the store keep artifacts in this bucket from now on; "" changes nothing."""
        if setting:
            from mulligan.object_store.places import checked_place
            from mulligan.service.host.object_places import agree

            agree(self._reader.store, checked_place(setting, "'artifacts' in the configuration"))

    def examine_machine(self) -> Diagnosis:
        """Check this machine and the store."""
        from mulligan.service.host import doctor

        return doctor.examine_machine(self._reader.home)

    def slurm_profiles(
        self, folder: Path, workflow: Mapping[str, SlurmProfile] | None = None, workflow_file: str = ""
    ) -> Profiles:
        """How pilots are submitted, by profile: from the file of profiles, and from a workflow file."""
        from mulligan.service.host.slurm import profiles

        return profiles.find_profiles(folder, workflow or {}, workflow_file)

    def slurm_submit(self, count: int, profile: str, known: Profiles, *, tasks: int | None = None) -> Submitted:
        """Submit so many more pilots, all in one job array."""
        if not 1 <= count <= PILOTS_MAX:
            raise InputInvalid(f"{count} pilots cannot be submitted", hint=f"give a number from 1 to {PILOTS_MAX:,}")
        if tasks is not None and tasks < 1:
            raise InputInvalid(f"--tasks must be at least 1, not {tasks}")
        chosen = known.get(profile)
        from mulligan.service.host.slurm import submission

        cluster = submission.Cluster(self._reader.home)
        cluster.client.require("sbatch", "squeue")
        if not self._reader.home.is_remote:
            # Pilots of a database that does not answer would wait for it, and end without a task.
            self._reader.store.now()
        with cluster.alone():
            from mulligan.service.host.slurm import pilots

            name = pilots.PilotName(cluster.store, profile, pilots.size_of(chosen))
            found = cluster.cancel_duplicates(cluster.pilots())
            taken = {one.number for one in found if one.name == name and one.job.is_active}
            try:
                return cluster.submit(name, pilots.free_numbers(taken, count), chosen, tasks=tasks)
            except SlurmRefused as refusal:
                from mulligan.service.host.slurm import profiles

                refusal.hint = profiles.refusal_hint(refusal.about, profile, known.files[profile])
                raise

    def slurm_status(self, known: Profiles) -> SlurmStatus:
        """The pilots of the store, the workers in them, and what the queue asks for."""
        from mulligan.service.host.slurm import allocator, overview, planning, submission

        cluster = submission.Cluster(self._reader.home)
        cluster.client.require("squeue")
        found = cluster.pilots()
        from mulligan.service.host import breakers

        opened = [
            one for one in breakers.list_breakers(self._reader) if one.name.startswith(allocator.breaker_name(""))
        ]
        demand = self._reader.store.queued_shapes()
        from mulligan.service.driving import workers

        return overview.SlurmStatus(
            store=cluster.store,
            pilots=overview.pilot_lines(found, workers.list_workers(self._reader), datetime.now(UTC)),
            demand=demand,
            unmet=planning.unmet(known.by_name, demand),
            breakers=[one for one in opened if one.status != "closed"],
            failed=overview.failed_pilots(found, self._reader.home.folder),
        )

    def slurm_auto(
        self,
        known: Profiles,
        pilots_max: int,
        *,
        profile: str = "",
        every_seconds: float | None = None,
        is_once: bool = False,
        say: Callable[[str], None],
        say_start: Callable[[], None] = lambda: None,
    ) -> str:
        """Submit the pilots that the queue asks for, at most so many at a time, until it is stopped. Why it ended.

        With a profile only pilots of that one. With `is_once` it looks a single time. `say_start` is called when
        nothing stands against the start any more.
        """
        if not 1 <= pilots_max <= PILOTS_MAX:
            raise InputInvalid(f"--max {pilots_max} is not possible", hint=f"give a number from 1 to {PILOTS_MAX:,}")
        from mulligan.service.host.slurm import allocator, submission

        cluster = submission.Cluster(self._reader.home)
        cluster.client.require("sbatch", "squeue", "scancel")
        found = allocator.Allocator(
            cluster,
            lambda: self._reader.store,
            {profile: known.get(profile)} if profile else known.by_name,
            pilots_max=pilots_max,
            say=say,
        )
        say_start()
        if is_once:
            found.announce(found.poll())
            return ""
        return found.serve(allocator.POLL_SECONDS if every_seconds is None else every_seconds)

    def slurm_drain(self, profile: str = "", *, now: bool = False) -> Drained:
        """Submit nothing more, cancel pilots that wait, and let those that run end after their tasks, or at once."""
        from mulligan.service.host.slurm import draining, submission

        cluster = submission.Cluster(self._reader.home)
        cluster.client.require("squeue", "scancel")
        return draining.drain(cluster, profile, now=now)

    def slurm_only_here(self) -> str:
        """The address of the store if pilots on other hosts cannot reach it under that name; "" if they may."""
        from mulligan.service.host.slurm import pilots

        return pilots.only_for_this_host(self._reader.home)

    def ping(self) -> None:
        """Ask the store for something small: raises if it does not answer, or refuses."""
        self._reader.store.now()

    def check_store(self) -> None:
        """`StoreOvertaken` if a newer Mulligan has migrated the store: this process must not use it any more."""
        if self._reader.home.is_there:
            self._reader.store.check_schema()

    def remove_old(self, now: datetime) -> datetime:
        """Remove a batch of old rows and abandoned files, as `[retention]` says; when to look again."""
        return self._retention.remove_due(now)

    @cached_property
    def _retention(self) -> Retention:
        from mulligan.service.server import retention

        return retention.Retention(self._reader.home, self._reader.store)
