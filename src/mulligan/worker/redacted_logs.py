"""Logs of a task that may print a secret: it writes into pipes, and into its files goes what the veil lets through."""

from __future__ import annotations

import os
import selectors

from mulligan.core.model.formatting import error_reason
from mulligan.worker import outputs
from mulligan.worker.fd_events import watch_reads
from mulligan.worker.folders import Logs, make_private
from mulligan.worker.redactor import RedactingStream, Redactor

# What is read at once: whoever writes without end must not keep us from all else.
READ_BYTES = 1 << 16
# As often as that one reads what a pipe can hold, as large as it may be made.
DRAIN_READS_MAX = (1 << 20) // READ_BYTES + 1
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class RedactedLogs:
    """Two pipes under the names that a process opens as its logs, for one attempt after the other."""

    def __init__(self, selector: selectors.BaseSelector, out: str, err: str) -> None:
        first = _Pipe(selector, out)
        try:
            self._pipes = (first, _Pipe(selector, err))
        except OSError:
            first.close()
            raise

    def begin(self, redactor: Redactor, logs: Logs) -> None:
        """From now on what comes is of this attempt."""
        for pipe, name in zip(self._pipes, logs, strict=True):
            pipe.begin(RedactingStream(redactor), name)

    def drain(self) -> None:
        """What was written until now is in the files, but for what may still become a secret."""
        for pipe in self._pipes:
            pipe.drain()

    def end(self) -> None:
        """The attempt is over, and all that it wrote is in the files. What still comes is nobody's."""
        for pipe in self._pipes:
            pipe.end()

    @property
    def loss_reason(self) -> str:
        """Why something is missing of what the attempt printed; "" where all of it is in the file."""
        return self._pipes[0].loss_reason

    def remove_empty(self) -> None:
        """What the attempt wrote has been read, and nothing is left of what it did not write."""
        for pipe in self._pipes:
            pipe.remove_empty()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


class _Pipe:
    """A named pipe, read as it fills, and the file that it is read into."""

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
        # Also for writing: so it never seems to be over because nobody has it open just then.
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
        """Whether something was there."""
        try:
            data = os.read(self._fd, READ_BYTES) if self._fd >= 0 else b""
        except BlockingIOError:
            return False
        if data and self._stream is not None:
            self._write(self._stream.feed(data))
        return bool(data)

    def _write(self, data: bytes) -> None:
        """What there is no room for is lost, and that is noted: a result counts without its log, if it is not in it."""
        try:
            while data and self._file >= 0:
                data = data[os.write(self._file, data) :]
                self._is_empty = False
        except OSError as error:
            self.loss_reason = error_reason(error)
