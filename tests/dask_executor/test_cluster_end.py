"""The end of the connections to a Dask cluster. No cluster is needed for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from mulligan.dask_executor.cluster import Cluster, Inbox
from mulligan.errors import ClusterUnavailable


def opened() -> Cluster:
    """A cluster whose event loop runs, without any connection."""
    cluster = Cluster("tcp://127.0.0.1:1", Inbox(), lambda _: pytest.fail("nobody is greeted"), lease_seconds=60)
    cluster._thread.start()
    return cluster


def begin(cluster: Cluster, work: Callable[[asyncio.Event], asyncio._CoroutineLike[None]]) -> None:
    """Let its event loop work on something, and wait until that has begun."""

    async def start() -> None:
        has_begun = asyncio.Event()
        cluster._spawn(work(has_begun))  # type: ignore[arg-type]
        await has_begun.wait()

    cluster._run(start())


def ends(cluster: Cluster) -> bool:
    closing = threading.Thread(target=cluster.close, daemon=True)
    closing.start()
    closing.join(60)
    cluster._inbox.wake_up.close()
    return not closing.is_alive()


def test_it_ends_although_a_cancellation_got_lost() -> None:
    async def stubborn(has_begun: asyncio.Event) -> None:
        has_begun.set()
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    cluster = opened()
    begin(cluster, stubborn)

    assert ends(cluster)


def test_it_ends_while_the_scheduler_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is ended first: whoever asks with a time limit may get that, and never the cancellation."""
    cluster = opened()
    monkeypatch.setattr("mulligan.dask_executor.cluster.LOOK_SECONDS", 0.0)

    async def look(has_begun: asyncio.Event) -> None:
        async def find() -> dict[str, dict[str, object]]:
            has_begun.set()
            answer = asyncio.get_running_loop().create_future()
            cluster._scheduler = Connection(answer)
            try:
                return await asyncio.wait_for(answer, 3600)
            except OSError as error:
                raise ClusterUnavailable("no Dask scheduler answers") from error

        monkeypatch.setattr(cluster, "_find_workers", find)
        await cluster._look_for_workers()

    begin(cluster, look)

    assert ends(cluster)


class Connection:
    """One that is asked for something."""

    def __init__(self, answer: asyncio.Future[dict[str, dict[str, object]]]) -> None:
        self._answer = answer

    def abort(self) -> None:
        self._answer.set_exception(OSError("in the middle of it"))
