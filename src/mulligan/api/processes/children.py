"""The child processes of a server: started, watched, started again when they die, stopped with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from logging import Logger

# How long to wait before a child is started again, at first and at most.
RESTART_SECONDS, RESTART_SECONDS_MAX = 1.0, 60.0
# One that lasted this long had a good start: its next end counts as the first.
STEADY_SECONDS = 60.0


class Child:
    """One child: `python WORDS…`, tied to this process."""

    def __init__(
        self, name: str, words: Sequence[str], log: Logger, *, restart_seconds: float = RESTART_SECONDS
    ) -> None:
        self.name = name
        self.command = [sys.executable, "-P", "-m", "mulligan.api.processes.tied_child", str(os.getpid()), *words]
        self._log = log
        self._restart_seconds = restart_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._ending = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def keep_running(self) -> None:
        """Start it, and start it again whenever it ends, until `stop`."""
        loop = asyncio.get_running_loop()
        seconds = self._restart_seconds
        while not self._ending.is_set():
            began = loop.time()
            code = await self._run()
            if self._ending.is_set():
                return
            seconds = self._restart_seconds if loop.time() - began >= STEADY_SECONDS else seconds
            how = f"was killed by signal {-code}" if code < 0 else f"has ended with exit code {code}"
            self._log.error("the %s %s; starting it again in %g s", self.name, how, seconds)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), seconds)
            seconds = min(seconds * 2, RESTART_SECONDS_MAX)

    async def _run(self) -> int:
        # In a session of its own: Ctrl-C reaches the server alone, which then stops its children in order.
        # What it prints goes to the log: stdout belongs to whoever reads the address of the server.
        self._process = await asyncio.create_subprocess_exec(
            *self.command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
        )
        if self._ending.is_set():
            # `stop` was called while the process was being started, and found none.
            self._send(signal.SIGTERM)
        return await self._process.wait()

    def stop(self) -> None:
        """Ask it to end. A second call ends it at once."""
        number = signal.SIGKILL if self._ending.is_set() and self.name != "worker" else signal.SIGTERM
        self._ending.set()
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        if self.pid is not None and self._process is not None:
            try:
                self._process.send_signal(number)
            except ProcessLookupError:
                pass  # it has just ended
