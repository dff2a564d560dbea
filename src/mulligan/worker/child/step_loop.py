"""The event loop of a warm child, which its asynchronous steps share: a client that one of them made can be used again.

Runs in any interpreter, like `child_main`: standard library only. Loaded for the first asynchronous step.
"""

from __future__ import annotations

import asyncio
import signal
import types
from concurrent.futures import Future, ThreadPoolExecutor

from mulligan.step_context.step_generators import run_async_generator
from mulligan.worker.child.json_encoding import NotJson

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# `signal.set_wakeup_fd` returns it if no loop handles signals.
NO_DESCRIPTOR = -1


class StepLoop:
    """Run one coroutine after the other in one loop; each leaves it as `asyncio.run` would, only open."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = _StepThreads()

    def run(self, step: object) -> object:
        """Run a coroutine, or an asynchronous generator, to its end."""
        coroutine: Any = run_async_generator(step, NotJson) if isinstance(step, types.AsyncGeneratorType) else step
        loop = self._usable_loop()
        loop.set_default_executor(self._threads)
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(coroutine)
        finally:
            self._clean_up(loop)

    def _usable_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the last step, unless that step broke it."""
        loop = self._loop
        is_broken = (
            loop is None or loop.is_closed() or loop.is_running() or getattr(loop, "_executor_shutdown_called", False)
        )
        if loop is None or is_broken:
            loop = self._loop = asyncio.new_event_loop()
            self._threads = _StepThreads()
        return loop

    def _clean_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the tasks that the step left, report their exceptions, and end the threads that it used."""
        try:
            if not loop.is_closed():
                # First let the loop close the asynchronous generators that the step has dropped.
                loop.run_until_complete(asyncio.sleep(0))
                _cancel_tasks(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.set_exception_handler(None)
            loop.set_task_factory(None)
            if self._threads.are_used:
                self._threads.shutdown(wait=True, cancel_futures=True)
                self._threads = _StepThreads()
            if signal.set_wakeup_fd(NO_DESCRIPTOR) != NO_DESCRIPTOR and not loop.is_closed():
                # The step has added a signal handler: the next step must not find it.
                loop.close()


class _StepThreads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`: they have to end with the step, or the process could not be kept."""

    are_used = False

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.are_used = True
        return super().submit(*args, **kwargs)


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left, and report exceptions, as `asyncio.run` does."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    loop.run_until_complete(_wait_for(tasks))
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            loop.call_exception_handler(
                {
                    "message": "a task that the step left behind raised an exception when it was cancelled",
                    "exception": task.exception(),
                    "task": task,
                }
            )


async def _wait_for(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
