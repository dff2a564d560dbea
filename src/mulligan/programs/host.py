"""The warm process that forks a copy of itself for each program: `python -m mulligan.programs.host FD`.

It imports little, so that the first program begins soon. What most programs need besides is imported when there is
nothing to do, so further ones begin in milliseconds. A copy is never used again. When the worker is gone, all copies
are killed.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

from mulligan import msgspec_import as msgspec_import
from mulligan.programs import messages as m
from mulligan.programs.process import run_program
from mulligan.step_context.log_records import watch_logging

RECEIVE_BYTES = 1 << 16
DESCRIPTORS_MAX = 16
# After so much time without anything to do, the host imports what further programs need.
IDLE_SECONDS = 0.5
# The exit status of a program that could not be forked, as of a program that cannot be started.
NOT_STARTED = 126
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Host:
    """Forks programs on request, and says when they have ended."""

    def __init__(self, sock: socket.socket, run: Callable[[socket.socket, str], NoReturn] = run_program) -> None:
        self._sock = sock
        self._run = run
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        # The numbers of the programs that run, by process.
        self._numbers: dict[int, int] = {}
        self._is_warm = False
        self._wakeups, self._wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> None:
        """Serve until the worker closes the socket."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            selector.register(self._wakeups, selectors.EVENT_READ)
            while True:
                # The first program has the processor for itself.
                may_warm = bool(self._numbers) and not self._is_warm
                ready = [key.fd for key, _ in selector.select(IDLE_SECONDS if may_warm else None)]
                if may_warm and not ready:
                    self._warm()
                if self._wakeups in ready:
                    os.read(self._wakeups, RECEIVE_BYTES)
                    self._reap()
                if self._sock.fileno() in ready and not self._receive():
                    self._kill_all()
                    return

    def _warm(self) -> None:
        """Import what most programs need. Each further copy shares it."""
        import mulligan.language.python.builder
        import mulligan.programs.event_loop  # noqa: F401

        gc.collect()
        gc.freeze()
        self._is_warm = True

    def _receive(self) -> bool:
        """Fork what is asked for; return whether the worker is there."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, RECEIVE_BYTES, DESCRIPTORS_MAX)
        except OSError:
            return False
        if not data:
            return False
        self._buffer += data
        self._descriptors += descriptors
        while len(self._buffer) >= m.LENGTH_BYTES:
            size = m.LENGTH_BYTES + int.from_bytes(self._buffer[: m.LENGTH_BYTES], "big")
            if len(self._buffer) < size:
                break
            order = m.decode_to_host(bytes(self._buffer[m.LENGTH_BYTES : size]))
            del self._buffer[:size]
            if isinstance(order, m.Kill):
                self._kill(order.number)
            else:
                self._fork(order, self._descriptors.pop(0))
        return True

    def _fork(self, order: m.Fork, descriptor: int) -> None:
        flush()
        try:
            pid = os.fork()
        except OSError:
            os.close(descriptor)
            self._send(m.Exited(order.number, status=NOT_STARTED))
            return
        if pid == 0:
            self._become(order, descriptor)
        os.close(descriptor)
        self._numbers[pid] = order.number
        _lead_group(pid)

    def _become(self, order: m.Fork, descriptor: int) -> NoReturn:
        """In the copy: be the program."""
        what = "the program could not be started"
        try:
            _lead_group(0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._sock.close()
            os.close(self._wakeups)
            os.close(self._wakeup)
            for other in self._descriptors:
                os.close(other)
            for path, number in ((order.stdout, 1), (order.stderr, 2)):
                log = os.open(path, _LOG_FLAGS, 0o600)
                os.dup2(log, number)
                os.close(log)
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
            os.environ.update(order.env)
            watch_logging()
            os.chdir(order.cwd)
            sock = socket.socket(fileno=descriptor)
            what = "the process of the program has failed, which is a bug in Mulligan"
            self._run(sock, order.cwd)
        except BaseException as error:
            os.write(2, f"{what}: {type(error).__name__}: {error}\n".encode("utf-8", "replace"))
        finally:
            os._exit(NOT_STARTED)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self._numbers.pop(pid, None)
            if number is None:
                continue
            # What it has started, such as the workers of a pool, ends with it.
            _kill_group(pid)
            code = os.waitstatus_to_exitcode(status)
            self._send(
                m.Exited(
                    number,
                    status=max(code, 0),
                    signal=-code if code < 0 else None,
                    cpu=used.ru_utime + used.ru_stime,
                    peak=used.ru_maxrss * 1024,
                )
            )

    def _send(self, message: m.Exited) -> None:
        try:
            self._sock.sendall(m.frame_of_host(message))
        except OSError:
            return  # the worker is gone: `_receive` sees it

    def _kill(self, number: int) -> None:
        for pid, known in self._numbers.items():
            if known == number:
                _kill_group(pid)

    def _kill_all(self) -> None:
        for pid in self._numbers:
            _kill_group(pid)


def _lead_group(pid: int) -> None:
    """Let a copy lead its own process group. Both processes do it, so that neither has to wait for the other."""
    try:
        os.setpgid(pid, pid)
    except OSError:
        return  # it has ended already


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # it has ended already


def flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def main(descriptor: str) -> None:
    """Serve over that descriptor, which may be standard input; programs get /dev/null there."""
    sock = socket.socket(fileno=os.dup(int(descriptor)))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if int(descriptor) > 0:
        os.close(int(descriptor))
    sys.argv[:] = [""]
    Host(sock).serve()


if __name__ == "__main__":
    main(sys.argv[1])
