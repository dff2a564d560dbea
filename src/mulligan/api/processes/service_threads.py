"""Threads in which handlers run. Each has a `Service` of its own, since a connection belongs to one thread."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from types import FrameType
from typing import TypeVar

from mulligan.api.access.shares import OWN, Claimant, Shares
from mulligan.api.http.struct_types import build_struct_types
from mulligan.errors import MulliganError, ServerBusy, StoreOvertaken, StoreUnavailable, TakesTooLong
from mulligan.service.driving.import_order import import_for_threads
from mulligan.service.home import Home
from mulligan.service.server.catalogue.text_reading import TextReader
from mulligan.service.service import Service

Result = TypeVar("Result")
# One reader answers more requests a second than four: they would wait for each other's turn of the interpreter.
READERS, CHANGERS = 1, 4
# How many questions wait before that thread, so that it has always one; half of them of one token.
READS_AHEAD = 4
# Those that answer the questions of `mulligan` elsewhere, which may ask for very many rows: no change waits behind it.
# Each token has one at a time, and so many of its questions wait: it may be in several scripts.
ANSWERERS, QUESTIONS_WAITING_MAX = 3, 200
# Those that take long wait for another process most of the time, which reads the texts.
COMPUTERS = 3
# More than this many waiting requests are refused at once, instead of being answered when nobody waits any more.
WAITING_MAX = 2_000
# How long after a migration by a newer Mulligan a server may still answer a question. Changes it refuses at once.
CHECK_SECONDS = 1.0
# How long somebody waits for sums over all runs, and how many may wait.
SUM_SECONDS_MAX, SUMS_WAITING_MAX = 10.0, 20


class ServiceThreads:
    """One thread that reads, a few that change something, answer stores or compute for long, and two that count runs.

    One of the last counts what somebody waits for, the other what was answered already. None of them reads a text of
    somebody else itself: another process does.
    """

    def __init__(self, home: Home, sum_seconds_max: float = SUM_SECONDS_MAX) -> None:
        _prepare_types()
        self.texts = TextReader()
        pool = partial(_Pool, home, _SchemaCheck(), self.texts.use)
        self._counters = pool("count", 1)
        self._readers = pool("read", READERS, prepare=self._count_in_background)
        self._changers = pool("change", CHANGERS)
        self._slow = pool("slow", COMPUTERS)
        self._answerers = pool("answer", ANSWERERS)
        self._sums = pool("sum", 1, waiting_max=SUMS_WAITING_MAX, prepare=self._count_in_background)
        # In the order in which they end.
        self._pools = (self._slow, self._answerers, self._sums, self._readers, self._changers, self._counters)
        self._shares = Shares(COMPUTERS)
        self._read_shares = Shares(
            READS_AHEAD, token_max=READS_AHEAD // 2, token_waiting_max=WAITING_MAX, waiting_max=WAITING_MAX
        )
        self._change_shares = Shares(
            CHANGERS, token_max=CHANGERS - 1, token_waiting_max=WAITING_MAX, waiting_max=WAITING_MAX
        )
        self._question_shares = Shares(
            ANSWERERS, token_waiting_max=QUESTIONS_WAITING_MAX, waiting_max=5 * QUESTIONS_WAITING_MAX
        )
        self._sum_seconds_max = sum_seconds_max

    async def read(self, work: Callable[[Service], Result], claimant: Claimant = OWN) -> Result:
        """Call `work` in the thread for readers. It must not wait for anything but the store.

        A page of a run with a hundred thousand items takes half a second: each token has its turn.
        """
        async with self._read_shares.turn(claimant):
            return await self._readers.call(work)

    async def change(self, work: Callable[[Service], Result], claimant: Claimant = OWN) -> Result:
        """Call `work` in one of the threads for changes, of which neither a token nor a project has all.

        A change may wait for the process that drives a run.
        """
        async with self._change_shares.turn(claimant):
            return await self._changers.call(work)

    async def look_up(self, work: Callable[[Service], Result], claimant: Claimant) -> Result:
        """Call `work`, a question to the store, in one of the threads for that, when it is the turn of `claimant`."""
        async with self._question_shares.turn(claimant):
            return await self._answerers.call(work)

    async def compute(self, work: Callable[[Service], Result], claimant: Claimant) -> Result:
        """Call `work`, which may take seconds, in one of the threads for that, when it is the turn of `claimant`."""
        async with self._shares.turn(claimant):
            return await self._slow.call(work)

    async def sum_up(self, work: Callable[[Service], Result]) -> Result:
        """Call `work`, which looks at all runs, in the thread for that. Nobody waits for it for longer than a while.

        Whoever asks again may find it counted: it goes on, and large sums are kept for a moment.
        """
        counting = asyncio.ensure_future(self._sums.call(work))
        done, _ = await asyncio.wait([counting], timeout=self._sum_seconds_max)
        if not done:
            # Nobody looks at what comes of it.
            counting.add_done_callback(lambda future: future.cancelled() or future.exception())
            raise TakesTooLong(
                f"to count this takes longer than {self._sum_seconds_max:g} s",
                hint="ask again in a minute, or for fewer runs: those of a workflow, or since a time",
            )
        return counting.result()

    @property
    def busy(self) -> list[str]:
        """Which threads do something, and where in our code they are."""
        return [place for pool in self._pools for place in pool.busy]

    def close(self) -> None:
        """Wait for what is running, but for no text that is being read; and close the stores."""
        self.texts.close()
        for pool in self._pools:
            pool.close()

    def _count_in_background(self, service: Service) -> None:
        """What is known of large stores is answered, and counted again by another thread: nobody waits behind that."""
        service.count_in_background(self._counters.submit)


@cache
def _prepare_types() -> None:
    """What threads must not do at once. Modules that are imported later would bring new types."""
    import_for_threads()
    build_struct_types()


class _SchemaCheck:
    """Whether a newer Mulligan has migrated the store. All threads of a server ask, together once a second."""

    def __init__(self) -> None:
        self.is_overtaken = False
        self._checked_at = -CHECK_SECONDS

    def check(self, service: Service) -> None:
        now = time.monotonic()
        if self.is_overtaken or now - self._checked_at >= CHECK_SECONDS:
            service.machine.check_store()
            self.is_overtaken, self._checked_at = False, now


class _Pool:
    def __init__(
        self,
        home: Home,
        schema: _SchemaCheck,
        begin: Callable[[], None],
        name: str,
        threads: int,
        waiting_max: int = WAITING_MAX,
        prepare: Callable[[Service], None] = lambda _: None,
    ) -> None:
        self._home = home
        self._prepare = prepare
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=begin)
        self._own = threading.local()
        self._opened: list[Service] = []
        self._waiting, self._waiting_max = 0, waiting_max
        # The threads that have something to do, with their names.
        self._busy: dict[int, str] = {}
        self._schema = schema

    @property
    def busy(self) -> list[str]:
        frames = sys._current_frames()
        return [f"thread {name} in {_place(frames.get(ident))}" for ident, name in list(self._busy.items())]

    async def call(self, work: Callable[[Service], Result]) -> Result:
        if self._waiting >= self._waiting_max:
            raise ServerBusy("the server has too many requests to answer", hint="ask again in a few seconds")
        self._waiting += 1
        try:
            return await asyncio.wrap_future(self.submit(work))
        finally:
            self._waiting -= 1

    def submit(self, work: Callable[[Service], Result]) -> Future[Result]:
        return self._executor.submit(self._call, work)

    def _call(self, work: Callable[[Service], Result]) -> Result:
        self._busy[threading.get_ident()] = threading.current_thread().name
        try:
            return self._work(work)
        finally:
            del self._busy[threading.get_ident()]

    def _work(self, work: Callable[[Service], Result]) -> Result:
        service: Service | None = getattr(self._own, "service", None)
        if service is None:
            service = self._own.service = Service(self._home)
            self._prepare(service)
            self._opened.append(service)
        try:
            self._schema.check(service)
            return work(service)
        except ServerBusy:
            raise
        except (StoreUnavailable, StoreOvertaken) as error:
            self._schema.is_overtaken = isinstance(error, StoreOvertaken)
            # The next call opens the store again: that is how the server recovers.
            self._own.service = None
            self._opened.remove(service)
            _close(service)
            raise

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        for service in self._opened:
            _close(service)
        self._opened.clear()


def _place(frame: FrameType | None) -> str:
    """The innermost line of ours."""
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("mulligan."):
        frame = frame.f_back
    return "?" if frame is None else f"{frame.f_globals['__name__']}:{frame.f_lineno}"


def _close(service: Service) -> None:
    try:
        service.close()
    except MulliganError:
        pass  # it is gone already
