"""The warm children of a worker: at most one for each slot stays, and none works for two workflows."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable

from mulligan.worker.children import Child, Job, Order, Step
from mulligan.worker.listening import expect, listen

# One that has had nothing to do for so long may hold modules that were changed since.
IDLE_SECONDS_MAX = 60.0


class Pool:
    """Hands out children and keeps them. `launch` has one started; `hear` is called when one has something to say."""

    def __init__(
        self,
        kept_max: float,
        selector: selectors.BaseSelector,
        launch: Callable[[Child], None],
        hear: Callable[[Child], None],
    ) -> None:
        self._kept_max = kept_max
        self._selector = selector
        self._launch = launch
        self._hear = hear
        self._children: dict[int, Child] = {}
        self._made = 0

    def __contains__(self, key: int) -> bool:
        return key in self._children

    def __getitem__(self, key: int) -> Child:
        return self._children[key]

    def take(self, version: str, interpreter: str, folder: str, *, is_veiled: bool = False) -> Child:
        """An idle child of the same workflow and interpreter, else a new one. One that is veiled writes into pipes."""
        long_ago = time.monotonic() - IDLE_SECONDS_MAX
        for child in self._children.values():
            if not child.is_idle:
                continue
            if child.idle_since < long_ago:
                self.let_go(child)
            elif (child.version, child.interpreter, child.pipes is not None) == (version, interpreter, is_veiled):
                return child
        idle = [child for child in self._children.values() if child.is_idle]
        if len(self._children) >= self._kept_max and idle:
            self.let_go(min(idle, key=lambda child: child.idle_since))
        self._made += 1
        child = Child(self._made, version, interpreter, folder)
        if is_veiled:
            child.lay_pipes(self._selector)
        self._children[child.key] = child
        self._launch(child)
        listen(self._selector, child, lambda: self._on_ready(child))
        return child

    def give(self, child: Child, step: Step, order: Order) -> None:
        """Hand a child a step; `ChildBroke` if it is not there any more."""
        child.give(step, order)
        expect(self._selector, child, is_sending=child.is_sending)

    def give_job(self, child: Child, job: Job) -> None:
        """Hand a child a job of ours; `ChildBroke` if it is not there any more."""
        child.give_job(job)
        expect(self._selector, child, is_sending=child.is_sending)

    def _on_ready(self, child: Child) -> None:
        if child.is_sending:
            child.send_more()
            expect(self._selector, child, is_sending=child.is_sending)
        self._hear(child)

    def let_go(self, child: Child) -> None:
        """It gets no further step, and ends when it reads so. Its supervisor will say when it has."""
        if child.fileno() >= 0:
            self._selector.unregister(child)
            child.close()

    def forget(self, child: Child) -> None:
        """It has ended."""
        self.let_go(child)
        child.remove_slots()
        del self._children[child.key]

    def forget_all(self) -> None:
        for child in list(self._children.values()):
            self.forget(child)

    def retire_all(self) -> None:
        """None of them gets a further step, and what they work at is nobody's business any more."""
        for child in self._children.values():
            child.step = child.job = None
            child.is_leaving = True

    def jobs(self) -> list[Job]:
        """What children do for the worker itself now."""
        return [child.job for child in self._children.values() if child.job is not None]

    def busy(self) -> list[tuple[Child, Step]]:
        return [(child, child.step) for child in self._children.values() if child.step is not None]
