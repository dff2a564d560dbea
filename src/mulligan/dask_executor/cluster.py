"""The connection of a driver to a Dask cluster: an event loop in a thread of its own.

The scheduler is asked which Dask workers there are. Everything else goes directly between the driver and the sessions
that it has inside them, over connections of Dask, with the TLS settings of Dask.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from distributed import Security
from distributed.comm.addressing import get_address_host_port
from distributed.comm.core import connect
from distributed.core import send_recv
from distributed.protocol.pickle import dumps

from mulligan.dask_executor import messages as m
from mulligan.dask_executor.channel import Channel, WakeUp
from mulligan.dask_executor.dask_worker import prepare, versions
from mulligan.errors import ClusterRefused, ClusterUnavailable, MulliganError

# How long the scheduler, and a Dask worker, may take to answer when a driver starts.
CONNECT_SECONDS = 10.0
# How often the scheduler is asked which workers there are.
LOOK_SECONDS = 1.0
# How long a cancelled task may take before it is cancelled again.
CANCEL_AGAIN_SECONDS = 0.1
# How long to wait for the first worker.
WORKERS_SECONDS = 60.0
# How long what a killed Dask worker ran may live on: its supervisor notices at once.
SETTLE_SECONDS = 1.0
PROBE_SECONDS = 2.0

T = TypeVar("T")
# A function of ours, which Dask sends by its name.
_PREPARE = dumps(prepare)  # type: ignore[no-untyped-call]


class Member(msgspec.Struct):
    """A Dask worker in which this driver has a session."""

    address: str
    host: str
    process: str
    # As its scheduler describes it.
    identity: dict[str, Any]
    channel: Channel


class Joined(msgspec.Struct, frozen=True):
    member: Member


class Received(msgspec.Struct, frozen=True):
    member: Member
    data: bytes


class Suspected(msgspec.Struct, frozen=True):
    """The connection to a Dask worker has ended. Whether its tasks still run is not known yet."""

    member: Member


class Lost(msgspec.Struct, frozen=True):
    """Nothing of the session runs any more."""

    member: Member


class Trouble(msgspec.Struct, frozen=True):
    """What a user should know; "" if it is over."""

    message: str


Event = Joined | Received | Suspected | Lost | Trouble


class Inbox:
    """What happened in the cluster, for the thread of the engine."""

    def __init__(self) -> None:
        self.wake_up = WakeUp()
        self.events: deque[Event] = deque()

    def put(self, event: Event) -> None:
        self.events.append(event)
        self.wake_up.set()


class Cluster:
    """Sessions in all workers of a Dask cluster. `hello` makes the first message to a worker from its identity."""

    def __init__(
        self, address: str, inbox: Inbox, hello: Callable[[dict[str, Any]], m.Hello], *, lease_seconds: float
    ) -> None:
        self.address = address
        self._inbox = inbox
        self._hello = hello
        self._lease_seconds = lease_seconds
        self._security = Security()  # type: ignore[no-untyped-call]
        # The connection over which the scheduler is asked.
        self._scheduler: Any = None
        self._members: dict[str, Member] = {}
        # Dask workers that were refused: they are not asked again.
        self._refused: set[str] = set()
        self._attaching: set[str] = set()
        self._trouble = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mulligan dask", daemon=True)

    # -- called by the thread of the engine --------------------------------------------------------------------------

    def open(self, say: Callable[[str], None]) -> None:
        """Connect, and open a session in every Dask worker. Raises if one cannot be used, or if there is none."""
        self._thread.start()
        try:
            self._open(say)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all connections. A session whose connection ends kills everything that it runs."""
        if self._thread.is_alive():
            with suppress(Exception):
                self._run(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def refuse(self, member: Member) -> None:
        """End the session, whose Dask worker gets no other one."""

        def end() -> None:
            self._refused.add(member.address)
            member.channel.abort()

        self._loop.call_soon_threadsafe(end)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _open(self, say: Callable[[str], None]) -> None:
        if self.address.startswith("tls://") and "ssl_context" not in self._connection_args():
            raise ClusterRefused(
                f"'{self.address}' needs TLS, and Dask's configuration names no certificates",
                hint="set distributed.comm.tls.ca-file and distributed.comm.tls.client.cert in Dask's configuration",
            )
        found = self._run(self._find_workers())
        end = time.monotonic() + WORKERS_SECONDS
        if not found:
            say(f"the Dask cluster at {self.address} has no workers; waiting for one")
        while not found:
            if time.monotonic() > end:
                raise ClusterUnavailable(
                    f"the Dask cluster at {self.address} has no workers", hint=f"start one: dask worker {self.address}"
                )
            time.sleep(LOOK_SECONDS / 4)
            found = self._run(self._find_workers())
            if found:
                say("")
        self._run(self._attach_all(found))

    # -- the event loop ----------------------------------------------------------------------------------------------

    async def _attach_all(self, found: dict[str, dict[str, Any]]) -> None:
        await asyncio.gather(*(self._attach(address, identity) for address, identity in found.items()))
        self._spawn(self._look_for_workers())

    async def _close(self) -> None:
        self._leave_scheduler()
        for member in self._members.values():
            member.channel.abort()
        # Again and again: who waits with a time limit, as Dask does, may take a cancellation for what it waited for.
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CANCEL_AGAIN_SECONDS)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _connection_args(self) -> dict[str, Any]:
        args: dict[str, Any] = self._security.get_connection_args("client")  # type: ignore[no-untyped-call]
        return args if args.get("ssl_context") is not None else {k: v for k, v in args.items() if k != "ssl_context"}

    async def _connect(self, address: str, seconds: float = CONNECT_SECONDS) -> Any:
        """Connect; ConnectionRefusedError at once if nothing listens there, where Dask would try again and again."""
        with suppress(ValueError):
            host, port = get_address_host_port(address)
            async with asyncio.timeout(seconds):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
        # What answers may not be Dask: the time limit of Dask does not cover its first words.
        async with asyncio.timeout(seconds + 1):
            return await connect(address, timeout=seconds, **self._connection_args())  # type: ignore[no-untyped-call]

    async def _find_workers(self) -> dict[str, dict[str, Any]]:
        """The Dask workers that run, by address, as the scheduler describes them."""
        try:
            if self._scheduler is None:
                self._scheduler = await self._connect(self.address)
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await send_recv(self._scheduler, op="identity")
        except Exception as error:
            self._leave_scheduler()
            raise ClusterUnavailable(
                f"no Dask scheduler answers at {self.address}: {_reason(error)}",
                hint="is it running, and is this the address that it printed? to start one: dask scheduler",
            ) from error
        if not isinstance(found, dict) or found.get("type") != "Scheduler":
            raise ClusterRefused(f"{self.address} is not a Dask scheduler", hint="name the address of the scheduler")
        return {address: one for address, one in found["workers"].items() if one["status"] in ("running", "paused")}

    def _leave_scheduler(self) -> None:
        if self._scheduler is not None:
            self._scheduler.abort()
            self._scheduler = None

    async def _look_for_workers(self) -> None:
        """Open sessions in workers that join, and say when the scheduler is gone."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                found = await self._find_workers()
            except MulliganError as error:
                self._say(f"{error.message}; waiting for it")
                continue
            self._say("" if found else f"the Dask cluster at {self.address} has no workers; waiting for one")
            self._refused &= set(found)
            new = set(found) - set(self._members) - self._refused - self._attaching
            for address in new:
                self._spawn(self._attach_later(address, found[address]))

    def _say(self, message: str) -> None:
        if message != self._trouble:
            self._trouble = message
            self._inbox.put(Trouble(message))

    async def _attach_later(self, address: str, identity: dict[str, Any]) -> None:
        self._attaching.add(address)
        try:
            await self._attach(address, identity)
        except ClusterRefused as error:
            self._refused.add(address)
            self._say(f"{error.message}; it gets no tasks")
        except ClusterUnavailable:
            pass  # it is asked again if it is still there
        finally:
            self._attaching.discard(address)

    async def _attach(self, address: str, identity: dict[str, Any]) -> None:
        """Open a session."""
        try:
            comm = await self._connect(address)
        except Exception as error:
            raise ClusterUnavailable(
                f"the Dask worker at {address} cannot be reached from here: {_reason(error)}",
                hint="Mulligan talks to the workers directly: run it where their addresses can be reached",
            ) from error
        try:
            async with asyncio.timeout(CONNECT_SECONDS * 2):
                introduction = await self._introduce(comm, address)
            _refuse_other_versions(address, introduction.versions)
            hello = m.encode(self._hello(identity))
            await comm.write({"op": m.OPERATION, "hello": hello, "reply": False})
        except (TimeoutError, OSError) as error:
            comm.abort()
            raise ClusterUnavailable(f"the Dask worker at {address} does not answer: {_reason(error)}") from error
        except BaseException:
            comm.abort()
            raise
        member = Member(address, introduction.host, introduction.process, identity, Channel(comm, lambda _: None))
        member.channel = Channel(comm, lambda data: self._inbox.put(Received(member, data)))
        self._members[address] = member
        self._inbox.put(Joined(member))
        self._spawn(self._serve(member))

    async def _introduce(self, comm: Any, address: str) -> m.Introduction:
        try:
            answer = await send_recv(comm, op="run", function=_PREPARE)
        except OSError:
            raise
        except Exception as error:
            raise _unusable(address, error) from error
        if answer["status"] != "OK":
            raise _unusable(address, answer.get("exception") or answer["exception_text"])
        try:
            return msgspec.convert(answer["result"], m.Introduction)
        except msgspec.ValidationError as error:
            raise _unusable(address, error) from None

    async def _serve(self, member: Member) -> None:
        """Take part in a session until its connection ends; then find out when its tasks have ended."""
        await member.channel.run()
        self._inbox.put(Suspected(member))
        await self._wait_for_end(member)
        self._members.pop(member.address, None)
        self._inbox.put(Lost(member))

    async def _wait_for_end(self, member: Member) -> None:
        """Wait until nothing of the session can run any more.

        A session whose connection ends kills its tasks at once. If the process of the Dask worker is dead, so are they
        a moment later. If neither can be found out, they are killed when no heartbeat comes.
        """
        end = self._loop.time() + self._lease_seconds
        while self._loop.time() < end:
            try:
                comm = await self._connect(member.address, PROBE_SECONDS)
                try:
                    async with asyncio.timeout(PROBE_SECONDS):
                        introduction = await self._introduce(comm, member.address)
                finally:
                    comm.abort()
                if introduction.process == member.process:
                    return
            except ConnectionRefusedError:
                pass  # its port is closed, so its process is gone
            except (TimeoutError, OSError, ClusterRefused):
                await asyncio.sleep(SETTLE_SECONDS / 2)
                continue
            await asyncio.sleep(SETTLE_SECONDS)
            return


def _refuse_other_versions(address: str, theirs: m.Versions) -> None:
    ours = versions()
    if theirs == ours:
        return
    names = {"mulligan": "Mulligan", "python": "Python", "distributed": "distributed"}
    other = [
        f"{names[field]} {getattr(theirs, field)} (here: {getattr(ours, field)})"
        for field in m.Versions.__struct_fields__
        if getattr(theirs, field) != getattr(ours, field)
    ]
    raise ClusterRefused(
        f"the Dask worker at {address} has {', '.join(other)}", hint="install the same versions on both sides"
    )


def _unusable(address: str, error: object) -> ClusterRefused:
    if isinstance(error, ModuleNotFoundError | AttributeError | ImportError):
        return ClusterRefused(
            f"the Dask worker at {address} cannot load Mulligan: {error}",
            hint="install the same version of 'mulligan[dask]' there",
        )
    return ClusterRefused(f"the Dask worker at {address} cannot be used: {type(error).__name__}: {error}")


def _reason(error: BaseException) -> str:
    """The innermost reason: Dask wraps it several times."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
