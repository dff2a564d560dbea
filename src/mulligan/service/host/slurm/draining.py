"""`slurm drain`: no more pilots; those that wait are cancelled, those that run end after their tasks or at once."""

from __future__ import annotations

import msgspec

from mulligan.service.host.slurm.submission import Cluster
from mulligan.service.host.slurm.user_files import EVERY, DrainMarks

# What a worker takes as: end after your tasks. `--batch`: for the process of the job alone, not for its tasks.
_FINISH = ("--signal=USR1", "--batch")


class Drained(msgspec.Struct, frozen=True):
    """What was done about the pilots, by their ids."""

    # They had not started.
    cancelled: tuple[str, ...] = ()
    # They end after their tasks.
    asked: tuple[str, ...] = ()
    # They end now: their tasks are interrupted, and run again elsewhere.
    interrupted: tuple[str, ...] = ()


def drain(cluster: Cluster, profile: str = "", *, now: bool = False) -> Drained:
    """Drain all pilots of the store, or those of one profile."""
    DrainMarks(cluster.folder).mark(profile or EVERY)
    # Whoever is submitting has ended by then, and looks at the mark before the next time.
    with cluster.alone():
        found = [one for one in cluster.pilots() if one.job.is_active and profile in ("", one.name.profile)]
        waiting = tuple(one.job.shown_id for one in found if one.job.is_pending)
        running = tuple(one.job.shown_id for one in found if not one.job.is_pending)
        if now:
            cluster.client.cancel((*waiting, *running))
            return Drained(waiting, (), running)
        # One that starts meanwhile is not cancelled with its tasks, but asked.
        cluster.client.cancel(waiting, "--state=PENDING")
        again = tuple(
            one.job.shown_id
            for one in (cluster.pilots() if waiting else [])
            if one.job.shown_id in waiting and one.job.is_active and not one.job.is_pending
        )
        cluster.client.cancel((*running, *again), *_FINISH)
        return Drained(tuple(one for one in waiting if one not in again), (*running, *again))
