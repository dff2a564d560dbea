"""Logs of a task that may print a secret: it writes to pipes, and what the redactor returns goes to its files."""

from __future__ import annotations

import os
import selectors

from mulligan.core.model.text.formatting import error_reason
from mulligan.worker.folders import Logs, make_private
from mulligan.worker.outputs import outputs
from mulligan.worker.secrets.redactor import RedactingStream, Redactor
from mulligan.worker.supervisor.fd_events import watch_reads

# How much is read at once, so that a task that never stops writing does not block the loop.
READ_BYTES = 1 << 16
# This many reads empty a pipe of the largest possible size.
DRAIN_READS_MAX = (1 << 20) // READ_BYTES + 1
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class RedactedLogs:
    """Two pipes at the paths that a process opens as its logs, for one attempt after the other."""

    def __init__(self, selector: selectors.BaseSelector, out: str, err: str) -> None:
        first = _Pipe(selector, out)
        try:
            self._pipes = (first, _Pipe(selector, err))
        except OSError:
            first.close()
            raise

    def begin(self, redactor: Redactor, logs: Logs) -> None:
        """Redact with this redactor, into these files, from now on."""
        for pipe, name in zip(self._pipes, logs, strict=True):
            pipe.begin(RedactingStream(redactor), name)

    def drain(self) -> None:
        """Write everything that arrived to the files, except what may still become a secret."""
        for pipe in self._pipes:
            pipe.drain()

    def end(self) -> None:
        """Finish the files of the attempt. What arrives later is discarded."""
        for pipe in self._pipes:
            pipe.end()

    @property
    def loss_reason(self) -> str:
        """Why the log of standard output is incomplete; "" if it is complete."""
        return self._pipes[0].loss_reason

    def remove_empty(self) -> None:
        """Remove the logs that stayed empty."""
        for pipe in self._pipes:
            pipe.remove_empty()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


class _Pipe:
    """A named pipe, read as it fills, and the file that it is copied to."""

    def __init__(self, selector: selectors.BaseSelector, path: str) -> None:
        self._selector = selector
        self._path = path
        self._stream: RedactingStream | None = None
        self._name = ""
        self._file = -1
        self._is_empty = True
        self.loss_reason = ""
        outputs.remove_file(path)
        os.mkfifo(path, 0o600)
        # Open for writing too, so that it is never at its end because no writer has it open.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        watch_reads(selector, self._fd, self._on_readable)

    def begin(self, stream: RedactingStream, name: str) -> None:
        self.remove_empty()
        self._stream, self._name, self._is_empty, self.loss_reason = stream, name, True, ""
        try:
            make_private(os.path.dirname(name))
            self._file = os.open(name, _LOG_FLAGS, 0o600)
        except OSError as error:
            self.loss_reason = error_reason(error)

    def drain(self) -> None:
        for _ in range(DRAIN_READS_MAX):
            if not self._read():
                return

    def end(self) -> None:
        self.drain()
        if self._stream is not None:
            self._write(self._stream.end())
            self._stream = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove_empty(self) -> None:
        self.end()
        if self._is_empty and self._name:
            outputs.remove_file(self._name)
        self._name = ""

    def close(self) -> None:
        if self._fd < 0:
            return
        self.end()
        self._selector.unregister(self._fd)
        os.close(self._fd)
        self._fd = -1
        outputs.remove_file(self._path)

    def _on_readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Read once; return whether there was something."""
        try:
            data = os.read(self._fd, READ_BYTES) if self._fd >= 0 else b""
        except BlockingIOError:
            return False
        if data and self._stream is not None:
            self._write(self._stream.feed(data))
        return bool(data)

    def _write(self, data: bytes) -> None:
        """Write to the file. If that fails, note why: a result without its log counts, unless the log is the output."""
        try:
            while data and self._file >= 0:
                data = data[os.write(self._file, data) :]
                self._is_empty = False
        except OSError as error:
            self.loss_reason = error_reason(error)
