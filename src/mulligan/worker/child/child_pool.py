"""The warm children of a worker: at most one for each slot is kept, and none runs steps of two workflows."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from functools import partial

from mulligan.worker.child.warm_child import BackgroundJob, CallRequest, ChildTask, WarmChild
from mulligan.worker.supervisor.fd_events import watch_reads, watch_writes

# A child that was idle for longer may have modules loaded that were changed since.
IDLE_SECONDS_MAX = 60.0
# Children beyond one for each slot, which tasks needed that only waited, are kept for this long.
SURPLUS_SECONDS = 1.0
# Starting a child keeps a processor busy for this long: it loads the libraries of its task.
LAUNCH_SECONDS = 0.25


class ChildPool:
    """Keep children for reuse. `launch` starts one; `on_message` is called when one has something to receive."""

    def __init__(
        self,
        idle_max: float,
        selector: selectors.BaseSelector,
        launch: Callable[[WarmChild], None],
        on_message: Callable[[WarmChild], None],
    ) -> None:
        self._idle_max = idle_max
        self._selector = selector
        self._launch = launch
        self._on_message = on_message
        self._children: dict[int, WarmChild] = {}
        self._last_number = 0

    def __contains__(self, key: int) -> bool:
        return key in self._children

    def __getitem__(self, key: int) -> WarmChild:
        return self._children[key]

    def find(self, key: int) -> WarmChild | None:
        """The child with this key; None if it has ended, and for the key of no child."""
        return self._children.get(key)

    def take(self, group: str, interpreter: str, folder: str, *, is_redacted: bool = False) -> WarmChild:
        """Return an idle child of the same group and interpreter, or a new one. If redacted, it logs into pipes."""
        found = self._find_idle(group, interpreter, is_redacted=is_redacted)
        if found is not None:
            return found
        idle = [child for child in self._children.values() if child.is_idle]
        if len(self._children) >= self._idle_max and idle:
            self.retire(min(idle, key=lambda child: child.idle_since))
        self._last_number += 1
        child = WarmChild(self._last_number, group, interpreter, folder)
        if is_redacted:
            child.open_pipes(self._selector)
        self._children[child.key] = child
        self._launch(child)
        watch_reads(self._selector, child, partial(self._on_ready, child))
        return child

    def _find_idle(self, group: str, interpreter: str, *, is_redacted: bool) -> WarmChild | None:
        long_ago = time.monotonic() - IDLE_SECONDS_MAX
        for child in self._children.values():
            # Its `is_idle`, which would be one more call for each step.
            if child.task is not None or child.job is not None or child.is_leaving:
                continue
            if child.idle_since < long_ago:
                self.retire(child)
            elif (child.group, child.interpreter, child.pipes is not None) == (group, interpreter, is_redacted):
                return child
        return None

    def has_idle(self, group: str, interpreter: str, *, is_redacted: bool) -> bool:
        return self._find_idle(group, interpreter, is_redacted=is_redacted) is not None

    @property
    def has_spare_slot(self) -> bool:
        """Whether there are fewer busy children than slots."""
        return sum(not child.is_idle for child in self._children.values()) < self._idle_max

    def may_launch(self, now: float) -> bool:
        """Whether starting another child leaves those that are starting enough of the processors."""
        recent = sum(child.launched_at > now - LAUNCH_SECONDS for child in self._children.values())
        return recent < max(1, int(self._idle_max))

    def retire_surplus(self, now: float) -> float | None:
        """Retire idle children beyond one for each slot. Return when to look again, if there may be more."""
        kept = max(1, int(self._idle_max))
        if len(self._children) <= kept:
            return None
        idle = sorted((child.idle_since, child.key) for child in self._children.values() if child.is_idle)
        surplus = idle[: max(0, len(idle) - kept)]
        for since, key in surplus:
            if since + SURPLUS_SECONDS > now:
                return since + SURPLUS_SECONDS
            self.retire(self._children[key])
        return None

    def start_task(self, child: WarmChild, task: ChildTask, request: CallRequest) -> None:
        """Give a child a task; raise `ChildDisconnected` if it is gone."""
        child.start_task(task, request)
        if child.is_sending or child.is_watched_for_writes:
            self._watch_writes(child)

    def start_job(self, child: WarmChild, job: BackgroundJob) -> None:
        """Give a child a job; raise `ChildDisconnected` if it is gone."""
        child.start_job(job)
        self._watch_writes(child)

    def _watch_writes(self, child: WarmChild) -> None:
        """Wait until the child takes more, while there is more for it: a short message is sent at once."""
        if child.is_sending != child.is_watched_for_writes:
            child.is_watched_for_writes = child.is_sending
            watch_writes(self._selector, child, is_sending=child.is_sending)

    def _on_ready(self, child: WarmChild) -> None:
        # While something is left to send.
        if child.is_watched_for_writes:
            child.send_more()
            self._watch_writes(child)
        self._on_message(child)

    def ignore(self, child: WarmChild) -> None:
        """Read no more from a child that is about to be killed.

        Its socket stays open: the child could fail of a closed one before it is killed, and would be reported for that.
        """
        child.is_leaving = True
        self._selector.unregister(child)

    def retire(self, child: WarmChild) -> None:
        """Close the socket, so that the child exits. The supervisor reports when it has."""
        if child.fileno() >= 0:
            if child in self._selector.get_map():
                self._selector.unregister(child)
            child.close()

    def forget(self, child: WarmChild) -> None:
        """Remove a child that has ended."""
        self.retire(child)
        child.remove_slots()
        del self._children[child.key]

    def forget_all(self) -> None:
        for child in list(self._children.values()):
            self.forget(child)

    def retire_all(self) -> None:
        """Retire all children and ignore what they are running."""
        for child in self._children.values():
            child.task = child.job = None
            child.is_leaving = True

    def running_jobs(self) -> list[BackgroundJob]:
        """Return the jobs that children are running."""
        return [child.job for child in self._children.values() if child.job is not None]

    def busy_children(self) -> list[tuple[WarmChild, ChildTask]]:
        return [(child, child.task) for child in self._children.values() if child.task is not None]
