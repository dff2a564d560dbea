"""The event loop of an asynchronous program: its tasks are branches, its timers are durable, and it knows no sockets.

`asyncio.gather`, `TaskGroup`, `timeout`, `wait` and `as_completed` run on it as they are. Callbacks run in the order in
which they were scheduled; when there is none, the program is idle and gets the next end of a call.
"""

from __future__ import annotations

import asyncio
import math
import sys
import types
import warnings
from asyncio import events, tasks
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from mulligan.flows.context import PROGRAM, Site
from mulligan.programs.calls import Branch, Call
from mulligan.programs.errors import ProgramError, Stopped
from mulligan.programs.machine import UNAWAITED, Machine, shown_site

# What the loop refuses, by what the user has most likely written.
_THREADS = ("run_in_executor", "set_default_executor", "call_soon_threadsafe", "shutdown_default_executor")
_SOCKETS = (
    *("create_connection", "create_server", "create_datagram_endpoint", "create_unix_connection"),
    *("create_unix_server", "connect_accepted_socket", "start_tls", "sendfile", "getaddrinfo", "getnameinfo"),
    *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto"),
    *("sock_connect", "sock_accept", "sock_sendfile", "add_reader", "remove_reader", "add_writer", "remove_writer"),
)
_PROCESSES = ("subprocess_exec", "subprocess_shell", "connect_read_pipe", "connect_write_pipe")
_SIGNALS = ("add_signal_handler", "remove_signal_handler")
_RUNNING = ("run_forever", "run_until_complete", "stop", "close")


# How often a coroutine that awaits in its cleanup is asked to end.
_THROWS_MAX = 100


class BranchTask(asyncio.Task):  # type: ignore[type-arg]
    """A task is a branch of the program. It knows whether anybody asked for what it returns."""

    def __init__(self, coro: Any, *, loop: ProgramLoop, branch: Branch | None = None, **given: Any) -> None:
        if branch is None:
            above = loop.current_branch()
            # A call with a key has a branch of its own, whatever else is called.
            try:
                branch = above if isinstance(coro, Call) and coro.key else above.next_branch()
            except ProgramError:
                coro.close()
                raise
        self.branch = branch
        self.site = call_site_of_task()
        self.is_asked = False
        self.serial = loop.machine.next_serial()
        # As late as possible: this schedules its first step.
        super().__init__(coro, loop=loop, **given)

    def __hash__(self) -> int:
        """The same in each process, so that a set of tasks has the same order in a replay."""
        return self.serial

    def __await__(self) -> Generator[Any, Any, Any]:
        self.is_asked = True
        return super().__await__()

    def add_done_callback(self, function: Any, *, context: Context | None = None) -> None:
        self.is_asked = True
        super().add_done_callback(function, context=context)

    def result(self) -> Any:
        self.is_asked = True
        return super().result()

    def exception(self) -> BaseException | None:
        self.is_asked = True
        return super().exception()

    def cancel(self, msg: Any = None) -> bool:
        self.is_asked = True
        return super().cancel(msg)


def call_site_of_task() -> Site:
    """Where the user's code has made a task: outside of this package and of asyncio."""
    frame: types.FrameType | None = sys._getframe(1)
    own = __file__.rpartition("/")[0] + "/"
    library = asyncio.__file__.rpartition("/")[0] + "/"
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith((own, library)):
        frame = frame.f_back
    assert frame is not None
    return Site(frame.f_code.co_filename, frame.f_lineno)


class ProgramFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future with a number instead of an address, for the order of sets."""

    def __init__(self, *, loop: ProgramLoop) -> None:
        super().__init__(loop=loop)
        self.serial = loop.machine.next_serial()

    def __hash__(self) -> int:
        return self.serial


class _Timer(asyncio.TimerHandle):
    """A callback that is due later. When the program becomes idle, a durable sleep is called for it."""

    def __init__(self, when: float, function: Any, args: Any, loop: ProgramLoop, context: Context | None) -> None:
        super().__init__(when, function, args, loop, context)
        self.branch = loop.current_branch()
        self.call: Call[None] | None = None
        self.site = call_site_of_task()
        self._scheduled = True


class ProgramLoop(asyncio.AbstractEventLoop):
    """Runs one asynchronous program for its machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._ready: deque[asyncio.Handle] = deque()
        # Those that no sleep was called for yet.
        self._timers: list[_Timer] = []
        self._tasks: list[BranchTask] = []
        # Asynchronous generators that have begun, in this order; and the tasks that close those that nobody has.
        self._generators: WeakValueDictionary[int, AsyncGenerator[Any, Any]] = WeakValueDictionary()
        self._closing: list[BranchTask] = []
        self._is_running = False

    # -- running

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine of the program to its end, and then what it has left behind."""
        with _as_running_loop(self), _noted_coroutines() as forgotten, _as_completed_in_order():
            self._is_running = True
            main = BranchTask(coroutine, loop=self, branch=self.machine.root)
            self._tasks.append(main)
            try:
                self._drive(main)
                if not main.cancelled() and main.exception() is None:
                    self._refuse_unawaited(main, forgotten)
                self._unwind_others(main)
                self._close_generators()
                return main.result()
            except BaseException:
                self._drop_tasks()
                raise
            finally:
                self._is_running = False

    def _drive(self, main: BranchTask) -> None:
        while not main.done():
            self._run_ready()
            if not main.done():
                self._become_idle()

    def _run_ready(self) -> None:
        ready, machine = self._ready, self.machine
        while ready:
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
            if machine.broken is not None:
                raise machine.broken

    def _become_idle(self) -> None:
        for timer in self._timers:
            if not timer.cancelled():
                self._start_timer(timer)
        self._timers.clear()
        self.machine.deliver_next()

    def _start_timer(self, timer: _Timer) -> None:
        """Call a durable sleep for a timer."""
        machine = self.machine
        call = machine.prepare_seconds(max(0.0, timer.when() - machine.now))
        call.site = timer.site
        timer.call = call

        def fire() -> None:
            machine.now = max(machine.now, timer.when())
            self._ready.append(timer)

        call.future = fire
        machine.start(call, timer.branch)

    def _refuse_unawaited(self, main: BranchTask, forgotten: list[str]) -> None:
        for task in self._tasks:
            if task is not main and not task.is_asked and task.branch.has_calls:
                where = shown_site(task.site)
                hint = "await it, or put it into a TaskGroup"
                raise ProgramError(f"a task ({where}) was started and nobody asked for it", hint=hint, code=UNAWAITED)
        if forgotten:
            raise ProgramError(f"{forgotten[0]} was never awaited", hint="write await before it", code=UNAWAITED)

    def _unwind_others(self, main: BranchTask) -> None:
        """Cancel the tasks that are left and let them end, as `asyncio.run` does."""
        left = [task for task in self._tasks if task is not main and not task.done()]
        for task in left:
            task.cancel()
        self._drive_all(left)

    def _drive_all(self, left: list[BranchTask]) -> None:
        """Go on until all of them have ended; others may be added meanwhile."""
        while True:
            self._run_ready()
            while left and left[-1].done():
                left.pop()
            if not left:
                return
            self._become_idle()

    # -- asynchronous generators: what is left of them is closed, and their `finally` may call steps

    def begin_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[self.machine.next_serial()] = generator

    def drop_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Nobody has it any more: close it in a task of its own."""
        if self._is_running:
            self.call_soon(self._close_generator, generator)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        task = BranchTask(_closed(generator), loop=self)
        task.is_asked = True
        self._closing.append(task)

    def _close_generators(self) -> None:
        """Close the generators that are left, and wait for all that are being closed."""
        for generator in list(self._generators.values()):
            self._close_generator(generator)
        self._drive_all(self._closing)

    def _drop_tasks(self) -> None:
        """End the tasks of a program that does not go on, in memory. What they call meanwhile does nothing.

        The process of a program never comes here: it ends.
        """
        before = self.machine.broken
        self.machine.broken = before or Stopped()
        self._ready.clear()
        for task in (*self._tasks, *self._closing):
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _throw_until_it_ends(task.get_coro())
        self.machine.broken = before

    def current_branch(self) -> Branch:
        task = tasks.current_task(self) if self._is_running else None
        return task.branch if isinstance(task, BranchTask) else self.machine.root

    # -- calls

    def awaiting(self, call: Call[Any]) -> Generator[Any, Any, Any]:
        """Start a call, wait for it, return its result."""
        machine = self.machine
        machine.start(call, self.current_branch())
        yield from self._wait(call)
        return machine.result(call)

    def _wait(self, call: Call[Any]) -> Generator[Any, Any, None]:
        if call.outcome is not None:
            return
        future = self.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        call.future = wake
        try:
            yield from future.__await__()
        except asyncio.CancelledError:
            self.machine.cancel(call)
            raise

    def gather_calls(self, calls: list[Call[Any]], *, returns_failures: bool) -> Any:
        """`mulligan.gather` in an asynchronous program: to be awaited."""
        return _Gathered(self, calls, returns_failures=returns_failures)

    # -- what asyncio needs

    def time(self) -> float:
        """The time of the last end of a call: it stands still while the program runs."""
        return self.machine.now

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, self._of_program(context))
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.machine.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, self._of_program(context))
        if when <= self.machine.now:
            self._ready.append(timer)
        elif when != math.inf:  # otherwise it never fires, as with asyncio
            self._timers.append(timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, _Timer) and handle.call is not None:
            self.machine.cancel(handle.call)

    def create_future(self) -> asyncio.Future[Any]:
        return ProgramFuture(loop=self)

    def create_task(self, coro: Any, *, context: Context | None = None, **given: Any) -> asyncio.Task[Any]:
        task = BranchTask(coro, loop=self, context=self._of_program(context), **given)
        self._tasks.append(task)
        return task

    def _of_program(self, context: Context | None) -> Context | None:
        """A context that was given, in which steps can be called, too: it may be a new one."""
        if context is not None and PROGRAM not in context:
            context.run(PROGRAM.set, self.machine)
        return context

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """There is no debug mode."""

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    async def shutdown_asyncgens(self) -> None:
        """They are closed when the program ends."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Write what nobody catches to the log of the program."""
        if not self._is_running:
            return  # the program has ended
        error = context.get("exception")
        print(context.get("message", "unhandled exception"), "" if error is None else repr(error), file=sys.stderr)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


def _throw_until_it_ends(coroutine: Any) -> None:
    for _ in range(_THROWS_MAX):
        try:
            coroutine.throw(Stopped())
        except BaseException:
            return


async def _closed(generator: AsyncGenerator[Any, Any]) -> None:
    try:
        await generator.aclose()
    except Exception as error:
        print(f"an asynchronous generator could not be closed: {error!r}", file=sys.stderr)


class _Gathered:
    """Calls that run beside each other, to be awaited together."""

    def __init__(self, loop: ProgramLoop, calls: list[Call[Any]], *, returns_failures: bool) -> None:
        self._loop = loop
        self._calls = calls
        self._returns_failures = returns_failures

    def __await__(self) -> Generator[Any, Any, Any]:
        loop, machine = self._loop, self._loop.machine
        machine.start_all(self._calls, loop.current_branch())
        waiting = [call for call in self._calls if call.outcome is None]
        if waiting:
            future, left = loop.create_future(), len(waiting)

            def wake() -> None:
                nonlocal left
                left -= 1
                if not left and not future.done():
                    future.set_result(None)

            for call in waiting:
                call.future = wake
            try:
                yield from future.__await__()
            except asyncio.CancelledError:
                for call in waiting:
                    machine.cancel(call)
                raise
        return machine.results(self._calls, returns_failures=self._returns_failures)


def _refusal(name: str, why: str, hint: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ProgramError(why, hint=hint)

    refuse.__name__ = name
    return refuse


def _add_refusals() -> None:
    in_a_step = "do it in a step; @step(inline=True) runs in the program's own process"
    reasons = (
        (_THREADS, "a program cannot use threads or executors (asyncio.to_thread, run_in_executor)", in_a_step),
        (_SOCKETS, "a program cannot use the network: what it answers would differ in a replay", in_a_step),
        (_PROCESSES, "a program cannot start processes", in_a_step),
        (_SIGNALS, "a program cannot handle signals", "its process ends whenever it waits"),
        (_RUNNING, "a program cannot run or stop its own event loop", "write await"),
    )
    for names, why, hint in reasons:
        for name in names:
            setattr(ProgramLoop, name, _refusal(name, why, hint))
    # They are abstract, and defined now.
    ProgramLoop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


_add_refusals()


# -- what asyncio and Python do in an order of their own ---------------------------------------------------------------


@contextmanager
def _as_running_loop(loop: ProgramLoop) -> Iterator[None]:
    outer = events._get_running_loop()
    if outer is not None:
        raise ProgramError("an asynchronous program is run inside a running event loop", hint="run it in a thread")
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=loop.begin_generator, finalizer=loop.drop_generator)
    events._set_running_loop(loop)
    try:
        yield
    finally:
        events._set_running_loop(None)
        sys.set_asyncgen_hooks(*hooks)


@contextmanager
def _noted_coroutines() -> Iterator[list[str]]:
    """The coroutines that were dropped without being awaited, of which Python only warns."""
    found: list[str] = []

    def note(coroutine: Any) -> None:
        code = coroutine.cr_code
        found.append(f"'{coroutine.__qualname__}' ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})")

    known = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]
    warnings._warn_unawaited_coroutine = note  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        warnings._warn_unawaited_coroutine = known  # type: ignore[attr-defined]


@contextmanager
def _as_completed_in_order() -> Iterator[None]:
    """Let `asyncio.as_completed` start coroutines in the order in which they are given.

    It goes through a set of them, whose order depends on addresses. Its code is replaced, and not its name, because a
    module may have imported it by name.
    """
    function = asyncio.as_completed
    code, defaults, keywords = function.__code__, function.__defaults__, function.__kwdefaults__
    original = types.FunctionType(code, function.__globals__, function.__name__, defaults)
    original.__kwdefaults__ = keywords

    def ordered(fs, *, timeout=None):  # type: ignore[no-untyped-def]
        from mulligan.programs.event_loop import as_completed_of

        return as_completed_of(fs, timeout)

    _originals.append(original)
    function.__code__ = ordered.__code__
    function.__defaults__, function.__kwdefaults__ = None, {"timeout": None}
    try:
        yield
    finally:
        function.__code__ = code
        function.__defaults__, function.__kwdefaults__ = defaults, keywords
        _originals.pop()


_originals: list[Callable[..., Any]] = []


def as_completed_of(awaitables: Any, timeout: float | None) -> Any:
    """`asyncio.as_completed`, with a task for each awaitable in the order in which it was given."""
    loop = events._get_running_loop()
    if isinstance(loop, ProgramLoop):
        awaitables = [asyncio.ensure_future(one, loop=loop) for one in dict.fromkeys(awaitables)]
    return _originals[-1](awaitables, timeout=timeout)
