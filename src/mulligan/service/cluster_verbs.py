"""The verbs of `Service` about a cluster: workers of the store as jobs of Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.errors import InputInvalid, SlurmRefused
from mulligan.lazy_modules import LazyModule
from mulligan.service.home import Home
from mulligan.service.runs.stored.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.core.model.clusters.slurm_profile import SlurmProfile
    from mulligan.service.driving import workers
    from mulligan.service.host import breakers
    from mulligan.service.host.slurm import allocator, draining, overview, pilots, planning, profiles, submission
    from mulligan.service.host.slurm.draining import Drained
    from mulligan.service.host.slurm.overview import SlurmStatus
    from mulligan.service.host.slurm.profiles import Profiles
    from mulligan.service.host.slurm.submission import Submitted
else:
    breakers = LazyModule("mulligan.service.host.breakers")
    workers = LazyModule("mulligan.service.driving.workers")
    allocator = LazyModule("mulligan.service.host.slurm.allocator")
    draining = LazyModule("mulligan.service.host.slurm.draining")
    overview = LazyModule("mulligan.service.host.slurm.overview")
    pilots = LazyModule("mulligan.service.host.slurm.pilots")
    planning = LazyModule("mulligan.service.host.slurm.planning")
    profiles = LazyModule("mulligan.service.host.slurm.profiles")
    submission = LazyModule("mulligan.service.host.slurm.submission")

PILOTS_MAX = 10_000


class ClusterVerbs:
    """A part of `Service`."""

    home: Home
    reader: RunReader

    def slurm_profiles(
        self, folder: Path, workflow: Mapping[str, SlurmProfile] | None = None, workflow_file: str = ""
    ) -> Profiles:
        """How pilots are submitted, by profile: from the file of profiles, and from a workflow file."""
        return profiles.find_profiles(folder, workflow or {}, workflow_file)

    def slurm_submit(self, count: int, profile: str, known: Profiles, *, tasks: int | None = None) -> Submitted:
        """Submit so many more pilots, all in one job array."""
        if not 1 <= count <= PILOTS_MAX:
            raise InputInvalid(f"{count} pilots cannot be submitted", hint=f"give a number from 1 to {PILOTS_MAX:,}")
        if tasks is not None and tasks < 1:
            raise InputInvalid(f"--tasks must be at least 1, not {tasks}")
        chosen = known.get(profile)
        cluster = submission.Cluster(self.home)
        cluster.client.require("sbatch", "squeue")
        if not self.home.is_remote:
            # Pilots of a database that does not answer would wait for it, and end without a task.
            self.reader.store.now()
        with cluster.alone():
            name = pilots.PilotName(cluster.store, profile, pilots.size_of(chosen))
            found = cluster.cancel_duplicates(cluster.pilots())
            taken = {one.number for one in found if one.name == name and one.job.is_active}
            try:
                return cluster.submit(name, pilots.free_numbers(taken, count), chosen, tasks=tasks)
            except SlurmRefused as refusal:
                refusal.hint = profiles.refusal_hint(refusal.about, profile, known.files[profile])
                raise

    def slurm_status(self, known: Profiles) -> SlurmStatus:
        """The pilots of the store, the workers in them, and what the queue asks for."""
        cluster = submission.Cluster(self.home)
        cluster.client.require("squeue")
        found = cluster.pilots()
        opened = [one for one in breakers.list_breakers(self.reader) if one.name.startswith(allocator.breaker_name(""))]
        demand = self.reader.store.queued_shapes()
        return overview.SlurmStatus(
            store=cluster.store,
            pilots=overview.pilot_lines(found, workers.list_workers(self.reader), datetime.now(UTC)),
            demand=demand,
            unmet=planning.unmet(known.by_name, demand),
            breakers=[one for one in opened if one.status != "closed"],
            failed=overview.failed_pilots(found, self.home.folder),
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
        cluster = submission.Cluster(self.home)
        cluster.client.require("sbatch", "squeue", "scancel")
        found = allocator.Allocator(
            cluster,
            lambda: self.reader.store,
            {profile: known.get(profile)} if profile else known.by_name,
            pilots_max=pilots_max,
            say=say,
        )
        say_start()
        if is_once:
            found.poll_once()
            return ""
        return found.serve(allocator.POLL_SECONDS if every_seconds is None else every_seconds)

    def slurm_drain(self, profile: str = "", *, now: bool = False) -> Drained:
        """Submit nothing more, cancel pilots that wait, and let those that run end after their tasks, or at once."""
        cluster = submission.Cluster(self.home)
        cluster.client.require("squeue", "scancel")
        return draining.drain(cluster, profile, now=now)

    def slurm_only_here(self) -> str:
        """The address of the store if pilots on other hosts cannot reach it under that name; "" if they may."""
        return pilots.only_for_this_host(self.home)
