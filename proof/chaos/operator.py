"""Whoever has a say: answers what waits, and cancels, pauses, resumes and retries at bad moments. `person SEED`.

While the file `calm` is not there it disturbs; then it only answers, and lets what it paused go on. What it did is a
line each on stdout: verb, run, and what was said to it.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mulligan.errors import MulliganError, StoreUnavailable
from mulligan.ports import RunRecord, WaitingPlace
from mulligan.service.home import find_home
from mulligan.service.service import Service

LOOK_SECONDS = 0.2
# How many of the newest runs it chooses from.
SEEN_MAX = 200
# In one of so many looks it disturbs a run.
DISTURBS_ONE_IN = 4
VERBS = ("cancel", "cancel", "cancel_now", "pause", "pause", "retry", "retry", "retry")


class Operator:
    """One person at a terminal, with a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"operator {seed}")
        self.paused: dict[int, float] = {}
        self.retried: set[int] = set()

    def serve(self) -> None:
        while True:
            try:
                self._look()
            except StoreUnavailable:
                pass
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        service = Service(find_home(), by="operator")
        try:
            for waiting in service.reader.store.waiting_places():
                self._decide(service, waiting)
            is_calm = Path("calm").exists()
            if is_calm:
                self._resume_all(service)
            else:
                self._resume_some(service)
                if self.chance.randrange(DISTURBS_ONE_IN) == 0:
                    self._disturb(service)
        finally:
            service.close()

    # -- answering

    def _decide(self, service: Service, waiting: WaitingPlace) -> None:
        run_id, place = waiting.run_id, waiting.place
        if waiting.kind == "approval":
            is_approved = self.chance.randrange(4) > 0
            self._say(
                "approve",
                run_id,
                lambda: service.changes.approve(run_id, place, is_approved=is_approved, reason="chance"),
            )
        else:
            self._say("classify", run_id, lambda: service.changes.classify(run_id, place, "retry", "try again"))

    def _resume_some(self, service: Service) -> None:
        for run_id in [run_id for run_id, due in self.paused.items() if due < time.monotonic()]:
            self._resume(service, run_id)

    def _resume_all(self, service: Service) -> None:
        """Also those of which nobody said that they are paused: the answer may have been lost."""
        for record in service.reader.store.runs(limit=SEEN_MAX, statuses=("paused",)):
            if record.parent_run_id is None:
                self._resume(service, record.run_id)

    def _resume(self, service: Service, run_id: int) -> None:
        if self._say("resume", run_id, lambda: service.changes.resume(run_id)) != "unknown":
            self.paused.pop(run_id, None)

    # -- disturbing

    def _disturb(self, service: Service) -> None:
        verb = self.chance.choice(VERBS)
        record = self._chosen(service, is_ended=verb == "retry")
        if record is None:
            return
        run_id = record.run_id
        if verb == "pause":
            self.paused[run_id] = time.monotonic() + self.chance.uniform(0.1, 3.0)
            self._say(verb, run_id, lambda: service.changes.pause(run_id))
        elif verb == "retry":
            self.retried.add(run_id)
            self._say(verb, run_id, lambda: service.changes.retry(run_id, reason="once more"))
        else:
            self._say("cancel", run_id, lambda: service.changes.cancel(run_id, now=verb == "cancel_now"))

    def _chosen(self, service: Service, *, is_ended: bool) -> RunRecord | None:
        """A run at the top that has failed or was cancelled, or one that has not ended."""
        wanted = ("failed", "cancelled") if is_ended else ("running",)
        found = service.reader.store.runs(limit=SEEN_MAX, statuses=wanted)
        tops = [run for run in found if run.parent_run_id is None and not (is_ended and run.run_id in self.retried)]
        return self.chance.choice(tops) if tops else None

    def _say(self, verb: str, run_id: int, say: Callable[[], object]) -> str:
        """Do it, and note the answer. If the answer is lost, it is unknown whether it was done."""
        try:
            say()
            said = "done"
        except StoreUnavailable:
            said = "unknown"
        except MulliganError as error:
            said = error.code
        print(verb, run_id, said, flush=True)
        return said


if __name__ == "__main__":
    Operator(int(sys.argv[1])).serve()
