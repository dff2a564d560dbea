"""Inside a Dask worker: lets drivers open sessions. A driver sends this by name, so both need the same version."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from pathlib import Path
from typing import Any

import msgspec
from distributed import WorkerPlugin
from distributed._version import version as distributed_version
from distributed.core import Status

from mulligan import __version__
from mulligan.dask_executor.messages import OPERATION, Hello, Introduction, Versions, decode_hello
from mulligan.dask_executor.session import Session

PLUGIN = "mulligan"
# How long a Dask worker that closes waits for its sessions.
LEAVING_SECONDS_MAX = 5.0


def versions() -> Versions:
    """What this process runs."""
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(__version__, python, distributed_version)


async def prepare(dask_worker: Any) -> dict[str, Any]:
    """Make a Dask worker ready for sessions, and return its `Introduction`.

    Waits for sessions that are ending, so that nothing of them runs any more.
    """
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is None:
        plugin = Sessions()
        await dask_worker.plugin_add(plugin=plugin, name=PLUGIN)
    await plugin.wait_for_ending()
    return msgspec.to_builtins(Introduction(versions(), socket.gethostname(), plugin.process))  # type: ignore[no-any-return]


def tls_variables(security: Any) -> dict[str, str]:
    """The TLS settings of a Dask worker, as variables for the processes of its steps."""
    found = {
        "CA_FILE": security.tls_ca_file,
        "CLIENT__CERT": security.tls_client_cert or security.tls_worker_cert,
        "CLIENT__KEY": security.tls_client_key or security.tls_worker_key,
    }
    return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": path for name, path in found.items() if path}


class Sessions(WorkerPlugin):
    """The sessions of one Dask worker."""

    def __init__(self) -> None:
        self.process = f"{os.getpid()}.{os.urandom(4).hex()}"
        self._sessions: dict[Session, asyncio.Task[None]] = {}

    def setup(self, worker: Any) -> None:
        async def open_session(comm: Any, hello: bytes) -> Status:
            await self._serve(comm, decode_hello(hello), worker)
            return Status.dont_reply

        worker.handlers[OPERATION] = open_session

    async def teardown(self, worker: Any) -> None:
        worker.handlers.pop(OPERATION, None)
        for session in self._sessions:
            session.leave()
        if self._sessions:
            await asyncio.wait(self._sessions.values(), timeout=LEAVING_SECONDS_MAX)

    async def wait_for_ending(self) -> None:
        """Wait for sessions whose driver is gone."""
        ending = [task for session, task in self._sessions.items() if session.is_ending]
        if ending:
            await asyncio.wait(ending)

    async def _serve(self, comm: Any, hello: Hello, worker: Any) -> None:
        session = Session(
            comm,
            hello,
            socket.gethostname(),
            Path(worker.local_directory) / "mulligan",
            scheduler=worker.scheduler.address,
            tls_variables=tls_variables(worker.security),
        )
        task = asyncio.create_task(session.run())
        self._sessions[session] = task
        try:
            await asyncio.shield(task)
        finally:
            task.add_done_callback(lambda _: self._sessions.pop(session, None))
