"""Run the commands that print secrets, without blocking, and cache what they print for a while."""

from __future__ import annotations

import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from mulligan.core.model.text.formatting import error_reason
from mulligan.worker.slots.machine_trouble import trouble_of
from mulligan.worker.supervisor.fd_events import watch_reads

LOOKUP_SECONDS_MAX = 30.0
# How long a changed secret may go unnoticed.
FRESH_SECONDS = 300.0
_READ_BYTES = 1 << 16
# Python ignores it, and a new program would inherit that.
_RESTORED = (signal.SIGPIPE,)
# Folder and command are arguments, so neither needs quoting.
_TEXT = 'cd -- "$0" && exec bash -c "$1"'

# Folder and command.
Key = tuple[str, str]


class NotReady(Exception):
    """The value is not known yet. Ask again after the callback."""


class LookupFailed(Exception):
    """The command failed; the message says why, and never contains what it printed."""

    def __init__(self, reason: str, code: str = "EXCEPTION") -> None:
        super().__init__(reason)
        self.code = code


class SecretCommands:
    """Outputs of commands. `on_change` is called when a command has ended, successfully or not."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        environment: Mapping[str, str],
        on_change: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._selector = selector
        self._environment = environment
        self._on_change = on_change
        self._clock = clock
        self._running: dict[Key, _SecretCommand] = {}
        self._outputs: dict[Key, tuple[bytes, float]] = {}
        self._failures: dict[Key, LookupFailed] = {}

    def run(self, folder: str, command: str, bytes_max: int) -> bytes:
        """Return what the command printed, at most `bytes_max` + 1 bytes; raise NotReady or LookupFailed."""
        key = (folder, command)
        if key in self._failures:
            raise self._failures[key]
        printed, until = self._outputs.get(key, (b"", -math.inf))
        if self._clock() < until:
            return printed
        if key not in self._running:
            lookup = _SecretCommand(folder, command, self._environment, bytes_max=bytes_max, now=self._clock())
            self._running[key] = lookup
            watch_reads(self._selector, lookup.out, lambda: self._on_output(key))
            watch_reads(self._selector, lookup.end, lambda: self._on_output(key))
        raise NotReady

    def run_due(self, now: float) -> float:
        """Kill commands that take too long; return when to call it again."""
        for key, lookup in list(self._running.items()):
            if lookup.due <= now:
                self._check(key, lookup, now)
        return min((lookup.due for lookup in self._running.values()), default=math.inf)

    def close(self) -> None:
        for lookup in self._running.values():
            self._discard(lookup)
        self._running.clear()

    def _on_output(self, key: Key) -> None:
        """Handle output, or the end of the command."""
        lookup = self._running.get(key)
        if lookup is None:
            return  # it was handled a moment ago, by its other descriptor or by its timeout
        if not lookup.read():
            self._unwatch(lookup.out)
        self._check(key, lookup, self._clock())

    def _discard(self, lookup: _SecretCommand) -> None:
        self._unwatch(lookup.out)
        self._unwatch(lookup.end)
        lookup.kill()

    def _unwatch(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def _check(self, key: Key, lookup: _SecretCommand, now: float) -> None:
        """Finish the command if it has ended or its time is up."""
        try:
            printed = lookup.result(now)
        except NotReady:
            return
        except LookupFailed as failed:
            self._failures[key] = failed
        else:
            self._outputs[key] = (printed, now + FRESH_SECONDS)
        del self._running[key]
        self._discard(lookup)
        self._on_change()
        # Waiting tasks have got the error; a later task runs the command again.
        self._failures.pop(key, None)


class _SecretCommand:
    """A running command."""

    def __init__(self, folder: str, command: str, environment: Mapping[str, str], bytes_max: int, now: float) -> None:
        self._bytes_max = bytes_max
        self._printed = b""
        self.due = now + LOOKUP_SECONDS_MAX
        self.out, theirs = os.pipe()
        os.set_blocking(self.out, False)
        try:
            self._pid = os.posix_spawnp(
                "bash", ["bash", "-c", _TEXT, folder, command], environment, **_spawn_options(theirs)
            )
        except (OSError, ValueError) as error:
            os.close(self.out)
            if isinstance(error, OSError) and trouble_of(error.errno):
                raise
            raise LookupFailed(f"its command cannot be started: {error_reason(error)}") from None
        finally:
            os.close(theirs)
        # Readable when it has ended, even if a background process keeps its output open.
        try:
            self.end = os.pidfd_open(self._pid)
        except OSError:
            os.close(self.out)
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            raise

    def read(self) -> bool:
        """Read what is there. Return whether more may come that is needed."""
        while len(self._printed) <= self._bytes_max:
            try:
                data = os.read(self.out, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                break
            self._printed = (self._printed + data)[: self._bytes_max + 1]
        return False

    def result(self, now: float) -> bytes:
        """Return what it printed; raise NotReady while it runs, LookupFailed if it failed."""
        if len(self._printed) > self._bytes_max:
            return self._printed
        status = self._exit_status()
        if status is None and now < self.due:
            raise NotReady
        if status is None:
            raise LookupFailed(f"its command took longer than {LOOKUP_SECONDS_MAX:g}s", "TIMEOUT")
        if status:
            ended = f"exited with code {status}" if status > 0 else f"was killed by signal {-status}"
            raise LookupFailed(f"its command {ended}")
        self.read()  # what it printed since the last read
        return self._printed

    def kill(self) -> None:
        """Kill it and everything that it started in its session."""
        try:
            # Until it is waited for, its id and that of its group are not reused.
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        except (ChildProcessError, ProcessLookupError, PermissionError):
            pass  # other code in this process waits for any child, so the id may have been reused
        os.close(self.out)
        os.close(self.end)

    def _exit_status(self) -> int | None:
        """Return its exit code, or minus the signal that killed it; None while it runs."""
        try:
            ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return 0  # other code in this process waits for any child
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _spawn_options(out: int) -> dict[str, Any]:
    """Return the options that connect its output to this descriptor, and nothing else."""
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 2)]
    actions = [*nothing, (os.POSIX_SPAWN_DUP2, out, 1)]
    return {"file_actions": actions, "setsid": True, "setsigmask": (), "setsigdef": _RESTORED}
