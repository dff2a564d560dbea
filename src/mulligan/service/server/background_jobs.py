"""What the background process of a server does: a table of jobs, each asked when it is due.

A job is a function `(service, now) -> next moment | None`: it does what is due, and says when it wants to be asked
again; None for whenever something may have changed. Jobs are safe to run in several servers of a store at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from mulligan.errors import MulliganError, StoreOvertaken, StoreUnavailable
from mulligan.store.clock import PROCESS_CLOCK

if TYPE_CHECKING:
    from mulligan.service.service import Service

Work = Callable[["Service", datetime], datetime | None]
# A job without a next moment is asked again after this time: a notice may have been written, or a schedule changed.
LOOK_SECONDS = 1.0
# How often the store is asked for its time, which is counted on in between.
CLOCK_SECONDS = 10.0
# A smaller difference between two answers does not mean that the clock was set back.
SET_BACK = timedelta(seconds=1)
# How long a job that failed is left alone, at first and at most.
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 1.0, 60.0


class Job(NamedTuple):
    """A job of the table."""

    name: str
    work: Work


JOBS: tuple[Job, ...] = (
    Job("schedules", lambda service, now: service.schedules.fire_due(now)),
    Job("workers", lambda service, now: service.notices.announce_workers(now)),
    Job("notices", lambda service, now: service.notices.send_due(now)),
    Job("retention", lambda service, now: service.machine.remove_old(now)),
)


class BackgroundJobs:
    """Runs jobs, one after the other, in this thread."""

    def __init__(
        self, jobs: Sequence[Job], log: Callable[[str], None], elapsed: Callable[[], float] = PROCESS_CLOCK.elapsed
    ) -> None:
        self._elapsed = elapsed
        # What the store said about the time, and when.
        self._asked: tuple[datetime, float] | None = None
        self._jobs = {job.name: job.work for job in jobs}
        self._log = log
        self._due: dict[str, datetime] = {}
        self._failures: dict[str, int] = {}
        self._last_now = datetime.min.replace(tzinfo=UTC)

    def run_due(self, service: Service) -> float:
        """Run what is due; in how many seconds to ask again. Errors of the store are left to the caller."""
        for name, work in self._jobs.items():
            now = self._now(service)
            if (due := self._due.get(name)) is not None and due > now:
                continue
            self._due[name] = self._run(name, work, service, now)
        now = self._now(service)
        nearest = min(self._due.values(), default=now + timedelta(seconds=LOOK_SECONDS))
        return min(max((nearest - now).total_seconds(), 0.0), LOOK_SECONDS)

    def _now(self, service: Service) -> datetime:
        """The time. If the clock was set back, what jobs said about later moments is void, and all are due."""
        if self._asked is None or self._elapsed() - self._asked[1] >= CLOCK_SECONDS:
            # Counted from the answer on: rather behind the store than ahead of it.
            self._asked = service.now(), self._elapsed()
        asked, at = self._asked
        now = asked + timedelta(seconds=self._elapsed() - at)
        if self._last_now - now > SET_BACK:
            self._due.clear()
            self._last_now = now
        # An answer that took longer than the last one is no clock that was set back.
        self._last_now = max(now, self._last_now)
        return self._last_now

    def _run(self, name: str, work: Work, service: Service, now: datetime) -> datetime:
        look = now + timedelta(seconds=LOOK_SECONDS)
        try:
            following = work(service, now)
        except (StoreUnavailable, StoreOvertaken):
            raise
        except Exception as error:
            # One job that fails must not keep the others from their work.
            failures = self._failures[name] = self._failures.get(name, 0) + 1
            seconds = min(BACKOFF_SECONDS * 2 ** (failures - 1), BACKOFF_SECONDS_MAX)
            text = error.render() if isinstance(error, MulliganError) else repr(error)
            self._log(f"{name}: {text}; trying again in {seconds:g} s")
            return now + timedelta(seconds=seconds)
        self._failures.pop(name, None)
        return look if following is None else following


def run_jobs(
    open_service: Callable[[], Service],
    should_end: Callable[[], bool],
    log: Callable[[str], None],
    *,
    jobs: Sequence[Job] = JOBS,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run the table until it should end. A store that has gone away is opened again and again."""
    runner = BackgroundJobs(jobs, log)
    backoff, reported = BACKOFF_SECONDS, ""
    while not should_end():
        try:
            with open_service() as service:
                while not should_end():
                    seconds = runner.run_due(service)
                    backoff, reported = BACKOFF_SECONDS, ""
                    sleep(seconds)
        except (StoreUnavailable, StoreOvertaken) as error:
            # A newer Mulligan has migrated the store: nothing is fired or sent here, until a backup is restored.
            if error.message != reported:
                log(f"{error.message}; waiting for it")
            reported = error.message
            sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_SECONDS_MAX)
