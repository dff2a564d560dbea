"""The warm children of a worker: none runs steps of two workflows, or of two scopes of secrets.

At most one for each slot is kept, and a few more where steps know different secrets.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Iterator
from functools import partial

from mulligan.worker.child.warm_child import BackgroundJob, CallRequest, ChildTask, ChildUse, WarmChild
from mulligan.worker.supervisor.fd_events import watch_reads, watch_writes

# A child that was idle for longer may have modules loaded that were changed since.
IDLE_SECONDS_MAX = 60.0
# The clocks of file systems tick slowly.
TICK_SECONDS = 0.02
# Children beyond one for each slot, which tasks needed that only waited, are kept for this long.
SURPLUS_SECONDS = 1.0
# A child of steps that may know secrets is kept idle for this long, and so many more children as there are scopes of
# secrets: otherwise steps that take turns, with a secret and without, would each start one.
SCOPE_SECONDS = 10.0
SCOPES_MAX = 3
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
        # Most workers never run a step that knows a secret.
        self._has_scopes = False

    def __iter__(self) -> Iterator[WarmChild]:
        return iter(self._children.values())

    def __contains__(self, key: int) -> bool:
        return key in self._children

    def __getitem__(self, key: int) -> WarmChild:
        return self._children[key]

    def find(self, key: int) -> WarmChild | None:
        """The child with this key; None if it has ended, and for the key of no child."""
        return self._children.get(key)

    def take(self, use: ChildUse, folder: str, code_changed_at: float = 0.0) -> WarmChild:
        """Return an idle child of the same use, or a new one. If redacted, it logs into pipes.

        It was launched after the code of its task changed last: another may have loaded what was there before.
        """
        found = self._find_idle(use, code_changed_at)
        if found is not None:
            return found
        idle = [child for child in self._children.values() if child.is_idle]
        if len(self._children) >= self._idle_max + self._scope_count(use) and idle:
            self.retire(min(idle, key=lambda child: child.idle_since))
        self._last_number += 1
        self._has_scopes = self._has_scopes or bool(use.scope)
        child = WarmChild(self._last_number, use, folder)
        if use.is_redacted:
            child.open_pipes(self._selector)
        self._children[child.key] = child
        self._launch(child)
        watch_reads(self._selector, child, partial(self._on_ready, child))
        return child

    def _find_idle(self, use: ChildUse, code_changed_at: float) -> WarmChild | None:
        long_ago = time.monotonic() - IDLE_SECONDS_MAX
        for child in self._children.values():
            # Its `is_idle`, which would be one more call for each step.
            if child.task is not None or child.job is not None or child.is_leaving:
                continue
            is_outdated = child.launched_wall <= code_changed_at + TICK_SECONDS
            if child.idle_since < long_ago or (is_outdated and child.use == use):
                self.retire(child)
            elif child.use == use:
                return child
        return None

    def has_idle(self, use: ChildUse, code_changed_at: float = 0.0) -> bool:
        return self._find_idle(use, code_changed_at) is not None

    def _scope_count(self, *uses: ChildUse) -> int:
        """How many children are kept beyond one for each slot."""
        scopes = {use.scope for use in (*uses, *(child.use for child in self._children.values())) if use.scope}
        return min(len(scopes), SCOPES_MAX)

    @property
    def has_spare_slot(self) -> bool:
        """Whether there are fewer busy children than slots."""
        return sum(not child.is_idle for child in self._children.values()) < self._idle_max

    def may_launch(self, now: float) -> bool:
        """Whether starting another child leaves those that are starting enough of the processors."""
        recent = sum(child.launched_at > now - LAUNCH_SECONDS for child in self._children.values())
        return recent < max(1, int(self._idle_max))

    def retire_surplus(self, now: float) -> float | None:
        """Retire idle children that are too many, or whose scope had no step for a while.

        Return when to look again, if there may be more.
        """
        scopes = self._scope_count() if self._has_scopes else 0
        kept = max(1, int(self._idle_max)) + scopes
        if len(self._children) <= kept and not scopes:
            return None
        idle = sorted((child.idle_since, child.key) for child in self._children.values() if child.is_idle)
        dues = [since + SURPLUS_SECONDS for since, _ in idle[: max(0, len(idle) - kept)]]
        dues += [
            since + SCOPE_SECONDS if self._children[key].use.scope else math.inf for since, key in idle[len(dues) :]
        ]
        for due, (_, key) in zip(dues, idle, strict=True):
            if due <= now:
                self.retire(self._children[key])
        return min((due for due in dues if now < due < math.inf), default=None)

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
